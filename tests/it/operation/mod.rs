//! One operation after another, through the public API: what each caller is told, and what stays on record.

mod batch;
mod conflict;
mod keys;
mod look;
mod replay;
mod resend;
mod retry;
mod run;
mod unknown;
mod upkeep;
