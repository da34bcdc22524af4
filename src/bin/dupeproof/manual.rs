//! `completions` and `man`: what packages install.

use clap::CommandFactory;
use clap_complete::generate;
use clap_mangen::Man;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::Failure;
use crate::print::print_out_bytes;
use crate::{Fallible, code};

const NAME: &str = "dupeproof";

pub(crate) fn completions(args: &CompletionsArgs) -> Fallible<()> {
    let mut script = Vec::new();
    generate(args.shell, &mut Cli::command(), NAME, &mut script);
    print_out_bytes(&script)
}

/// The page of the program, or of one of its commands.
pub(crate) fn man(args: &ManArgs) -> Fallible<()> {
    let mut program = Cli::command();
    program.build();
    let command = match &args.command {
        None => program,
        Some(name) => {
            let found = program.find_subcommand(name).cloned();
            found.ok_or_else(|| {
                let failure = Failure::with_code(code::NOT_FOUND, format!("there is no command {name}"));
                failure.next("dupeproof help".to_owned())
            })?
        }
    };
    let mut page = Vec::new();
    Man::new(command).render(&mut page).map_err(|error| Failure::new(format!("write the page: {error}")))?;
    print_out_bytes(&page)
}
