//! `dupeproof`: runs a command once per key, and shows and settles what is recorded. Uses the public API only.

mod args;
mod bar;
mod code;
mod duration;
mod failure;
mod inbox;
mod list;
mod manual;
mod outbox;
mod place;
mod portable;
mod print;
mod probe;
mod reconcile;
mod resolve;
mod run;
mod show;
mod text;
mod upkeep;
mod view;
mod workflow;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use failure::{Failure, Voice};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::usage(&error, std::env::args_os().skip(1)),
    };
    let voice = if cli.json { Voice::Json } else { Voice::Human };
    let result = match &cli.command {
        Command::Run(args) => return run::main(&cli.store, args, voice),
        Command::List(args) => list::main(&cli.store, args, voice),
        Command::Show(args) => show::main(&cli.store, args, voice),
        Command::Resolve(args) => resolve::main(&cli.store, args, voice),
        Command::Reconcile(args) => reconcile::main(&cli.store, args, voice),
        Command::Workflow(command) => workflow::main(&cli.store, command, voice),
        Command::Inbox(command) => inbox::main(&cli.store, command, voice),
        Command::Outbox(command) => outbox::main(&cli.store, command, voice),
        Command::Stats => upkeep::stats(&cli.store, voice),
        Command::Sweep(args) => upkeep::sweep(&cli.store, args, voice),
        Command::Verify => upkeep::verify(&cli.store, voice),
        Command::Compact => upkeep::compact(&cli.store, voice),
        Command::Backup(args) => upkeep::backup(&cli.store, args, voice),
        Command::Export => portable::export(&cli.store),
        Command::Import(args) => portable::import(&cli.store, args, voice),
        Command::Completions(args) => manual::completions(args),
        Command::Man(args) => manual::man(args),
    };
    match result {
        Ok(()) => ExitCode::from(code::DONE),
        Err(failure) => failure.report(&cli.store, voice),
    }
}

type Fallible<T> = Result<T, Failure>;
