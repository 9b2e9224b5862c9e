//! What is wrong with a scenario, for the person who wrote it.

use std::fmt;

/// Something wrong in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, from one; zero speaks of the whole file.
    pub line: usize,
    /// What is wrong, and what was expected.
    pub text: String,
}

/// Everything wrong with one file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    /// The file, as the caller named it.
    pub file: String,
    /// At least one.
    pub problems: Vec<Problem>,
}

impl Problems {
    /// Past this many, the first ones matter.
    const SHOWN_MAX: usize = 20;
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, problem) in self.problems.iter().take(Self::SHOWN_MAX).enumerate() {
            if position > 0 {
                writeln!(f)?;
            }
            write!(f, "{}:{}: {}", self.file, problem.line, problem.text)?;
        }
        match self.problems.len().saturating_sub(Self::SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "\n{}: and {more} more problems", self.file),
        }
    }
}

/// The known name nearest to a misspelt one, as a question to append; empty when none is near.
pub(crate) fn did_you_mean<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    // The distance is quadratic in the length, and nobody misspells a name this long.
    if given.len() > 64 {
        return String::new();
    }
    known
        .into_iter()
        .map(|name| (distance(given, name), name))
        .filter(|(distance, name)| *distance <= (name.len().max(given.len()) / 3).max(1))
        .min()
        .map_or_else(String::new, |(_, name)| format!("; did you mean `{name}`?"))
}

/// Insertions, deletions and replacements between two words.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, one) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, other) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(one != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered_and_a_far_one_is_not() {
        assert_eq!(did_you_mean("quotta", ["quota", "limit"]), "; did you mean `quota`?");
        assert_eq!(did_you_mean("xyz", ["quota", "limit"]), "");
    }
}
