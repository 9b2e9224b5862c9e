//! Reads lines that somebody else collected.

use super::{Found, Parser, scanner::merge};
use crate::Report;

/// Reads what a workload printed, line by line, wherever it was printed.
#[derive(Debug, Default)]
pub struct ProgressReader {
    parser: Parser,
    report: Report,
}

/// What a line said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// Nothing of interest.
    Nothing,
    /// How far it is.
    Progress,
    /// That it saved its state.
    Checkpoint,
}

impl ProgressReader {
    /// Reads the forms that common trainers print, or a pattern with named groups.
    pub fn new(pattern: Option<&str>) -> Result<Self, String> {
        Ok(Self { parser: Parser::new(pattern)?, report: Report::default() })
    }

    /// Reads a line.
    pub fn read(&mut self, line: &[u8]) -> Said {
        match self.parser.parse(line) {
            None => Said::Nothing,
            Some(Found::Checkpoint) => Said::Checkpoint,
            Some(Found::Progress(new)) => {
                merge(&mut self.report, new);
                Said::Progress
            }
        }
    }

    /// Everything that was said so far.
    pub fn report(&self) -> &Report {
        &self.report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_add_up_to_one_report() {
        let mut reader = ProgressReader::default();
        let said: Vec<Said> = ["epoch 1/4", "hello", "berth.checkpoint", "epoch 2/4 loss: 0.5"]
            .into_iter()
            .map(|line| reader.read(line.as_bytes()))
            .collect();
        assert_eq!(said, [Said::Progress, Said::Nothing, Said::Checkpoint, Said::Progress]);
        let report = reader.report();
        assert_eq!((report.epoch, report.epochs, report.loss.as_deref()), (Some(2), Some(4), Some("0.5")));
        assert!(ProgressReader::new(Some("(")).is_err());
    }
}
