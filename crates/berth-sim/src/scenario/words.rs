//! Lines to words, and words to values.

use super::problem::did_you_mean;
use berth_types::{AmountError, Name, Selector, Span};
use std::{collections::BTreeMap, str::FromStr};

/// Longer spans overflow nothing, but nobody simulates more than ten years.
const SPAN_MAX: Span = Span::secs(10 * 366 * 86_400);

/// Splits a line into words. A word in quotes may hold spaces; `#` at the start of a word begins a comment.
pub(super) fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut chars = line.chars().peekable();
    loop {
        while chars.next_if(|char| char.is_whitespace()).is_some() {}
        match chars.peek() {
            None | Some('#') => return Ok(words),
            Some(_) => {}
        }
        let mut word = String::new();
        while let Some(char) = chars.next_if(|char| !char.is_whitespace()) {
            if char != '"' {
                word.push(char);
                continue;
            }
            loop {
                match chars.next() {
                    Some('"') => break,
                    Some(char) => word.push(char),
                    None => return Err("a quote is not closed; expected a second `\"`".into()),
                }
            }
        }
        words.push(word);
    }
}

/// Reads an amount, with the name of what it is for.
pub(super) fn amount<T>(what: &str, text: &str) -> Result<T, String>
where
    T: FromStr<Err = AmountError>,
{
    if text.starts_with('-') {
        return Err(format!("{what}: `{text}` is negative; expected an amount of zero or more"));
    }
    text.parse().map_err(|error| format!("{what}: {error}"))
}

/// Reads an amount that must not be zero.
pub(super) fn positive<T>(what: &str, text: &str) -> Result<T, String>
where
    T: FromStr<Err = AmountError> + Default + PartialEq,
{
    let value: T = amount(what, text)?;
    if value == T::default() {
        return Err(format!("{what}: `{text}` is nothing; expected more than zero"));
    }
    Ok(value)
}

/// Reads a length of time.
pub(super) fn span(what: &str, text: &str) -> Result<Span, String> {
    let span: Span = amount(what, text)?;
    if span > SPAN_MAX {
        return Err(format!("{what}: `{text}` is too long; expected at most ten years"));
    }
    Ok(span)
}

/// Reads a length of time that must not be zero.
pub(super) fn positive_span(what: &str, text: &str) -> Result<Span, String> {
    match span(what, text)? {
        Span::ZERO => Err(format!("{what}: `{text}` is nothing; expected more than zero")),
        span => Ok(span),
    }
}

/// Reads a whole number between two others.
pub(super) fn number(what: &str, text: &str, least: i64, most: i64) -> Result<i64, String> {
    match text.parse::<i64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("{what}: expected a whole number from {least} to {most}, found `{text}`")),
    }
}

/// Reads a switch.
pub(super) fn switch(what: &str, text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{what}: expected `on` or `off`, found `{text}`")),
    }
}

/// Adds `key:value,value` to a selector.
pub(super) fn select(what: &str, text: &str, selector: &mut Selector) -> Result<(), String> {
    let wrong = || format!("{what}: expected key:value or key:value,value, found `{text}`");
    let (key, values) = text.split_once(':').ok_or_else(wrong)?;
    if key.is_empty() || values.split(',').any(str::is_empty) {
        return Err(wrong());
    }
    let accepted = selector.0.entry(Name::from(key)).or_default();
    accepted.extend(values.split(',').map(Name::from));
    Ok(())
}

/// Checks a name that a scenario gives to something.
pub(super) fn check_name(what: &str, name: &str, reserved: &[&str]) -> Result<(), String> {
    let mut chars = name.chars();
    let starts = chars.next().is_some_and(|first| first.is_ascii_alphabetic());
    let goes_on = chars.all(|char| char.is_ascii_alphanumeric() || "-_.".contains(char));
    if !starts || !goes_on || name.len() > 63 {
        return Err(format!(
            "`{name}` cannot name a {what}; expected a letter, then letters, digits, `-`, `_` or `.`, at most 63 in all"
        ));
    }
    if reserved.contains(&name) {
        return Err(format!("`{name}` is a word of the language and cannot name a {what}"));
    }
    Ok(())
}

/// The `key=value` words of a line. Each key is taken at most once; what is not taken is unknown.
pub(super) struct Settings<'a> {
    words: BTreeMap<&'a str, Vec<&'a str>>,
}

impl<'a> Settings<'a> {
    pub(super) fn read(words: &'a [String], problems: &mut Vec<String>) -> Self {
        let mut settings = BTreeMap::<&str, Vec<&str>>::new();
        for word in words {
            match word.split_once('=') {
                Some((key, value)) if !key.is_empty() => settings.entry(key).or_default().push(value),
                _ => problems.push(format!("expected key=value, found `{word}`")),
            }
        }
        Self { words: settings }
    }

    /// Reads the value of a key, if it is there, and notes what is wrong with it.
    pub(super) fn take<T>(
        &mut self,
        key: &str,
        problems: &mut Vec<String>,
        read: impl FnOnce(&str, &str) -> Result<T, String>,
    ) -> Option<T> {
        let values = self.words.remove(key)?;
        if values.len() > 1 {
            problems.push(format!("{key}: given {} times; expected it once", values.len()));
            return None;
        }
        read(key, values[0]).map_err(|text| problems.push(text)).ok()
    }

    /// All values of a key that may be given more than once.
    pub(super) fn take_all(&mut self, key: &str) -> Vec<&'a str> {
        self.words.remove(key).unwrap_or_default()
    }

    /// All keys that start like this, without the start, and their values.
    pub(super) fn take_prefixed(&mut self, prefix: &str) -> Vec<(&'a str, &'a str)> {
        let mut found = Vec::new();
        self.words.retain(|key, values| match key.strip_prefix(prefix) {
            Some(rest) if !rest.is_empty() => {
                found.extend(values.iter().map(|value| (rest, *value)));
                false
            }
            _ => true,
        });
        found
    }

    /// Notes the keys nobody took.
    pub(super) fn finish(self, known: &[&str], problems: &mut Vec<String>) {
        for key in self.words.into_keys() {
            let hint = match did_you_mean(key, known.iter().copied()) {
                hint if hint.is_empty() => format!("; expected one of {}", known.join(", ")),
                hint => hint,
            };
            problems.push(format!("unknown setting `{key}`{hint}"));
        }
    }
}
