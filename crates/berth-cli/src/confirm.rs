//! Questions before what cannot be undone.

use crate::failure::{Exit, Failure};
use std::io::{self, BufRead, IsTerminal, Write};

/// Asks a person; only `y` and `yes` go on. Where nobody can answer, the command fails and names the flag that answers.
pub(crate) fn ask(question: &str) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::misuse(format!("nothing was done, because nobody can answer: {question}"))
            .hint("add --yes to answer in advance"));
    }
    let mut answer = String::new();
    eprint!("{question} [y/N] ");
    let _ = io::stderr().flush();
    let read = io::stdin().lock().read_line(&mut answer);
    match (read, answer.trim().to_ascii_lowercase().as_str()) {
        (Ok(_), "y" | "yes") => Ok(()),
        _ => Err(Failure::new(Exit::Failed, "nothing was done")),
    }
}
