//! A request in a file: YAML or JSON, with mistakes shown where they are.

use crate::{failure::Failure, names};
use anyhow::Context;
use berth_api::{BODY_BYTES_MAX, WorkloadRequest};
use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// Reads the request of a file, `-` for stdin.
pub(crate) fn read(path: &Path) -> anyhow::Result<WorkloadRequest> {
    let mut bytes = Vec::new();
    let limit = BODY_BYTES_MAX as u64 + 1;
    let context = || format!("cannot read {}", path.display());
    if path == Path::new("-") {
        io::stdin().take(limit).read_to_end(&mut bytes).with_context(context)?;
    } else {
        File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)).with_context(context)?;
    }
    if bytes.len() > BODY_BYTES_MAX {
        return Err(Failure::misuse(format!("{} is above {BODY_BYTES_MAX} bytes", path.display())).into());
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| Failure::misuse(format!("{} is not UTF-8 text", path.display())))?;
    Ok(parse(&path.display().to_string(), &text)?)
}

/// JSON when it begins like JSON, since its own parser knows its mistakes better; YAML otherwise.
pub(crate) fn parse(file: &str, text: &str) -> Result<WorkloadRequest, Failure> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text)
            .map_err(|error| wrong(file, text, Some((error.line(), error.column())), &error.to_string()));
    }
    if text.trim().is_empty() {
        return Err(Failure::misuse(format!("{file} is empty")));
    }
    serde_saphyr::from_str(text).map_err(|error| {
        let place = error.location().map(|location| (location.line() as usize, location.column() as usize));
        wrong(file, text, place, &error.without_snippet().to_string())
    })
}

/// The words of a parser, made fit for people: the place is shown elsewhere, and a long list of fields helps less than the
/// one that was probably meant.
fn reworded(words: &str) -> String {
    let words = words.lines().next().unwrap_or_default();
    let words = words.rfind(" at line ").map_or(words, |end| &words[..end]);
    let words = match words.split_once(": ") {
        Some((head, rest)) if head.starts_with("line ") => rest,
        _ => words,
    };
    let words = words.split_once(", set DuplicateKeyPolicy").map_or(words, |(words, _)| words);
    if let Some(rest) = words.strip_prefix("unknown field `")
        && let Some((field, known)) = rest.split_once('`')
    {
        let known = known.split(" one of ").nth(1).unwrap_or_default();
        let mut known = known.split(", ").map(|name| name.trim_matches('`'));
        return match names::nearest(field, &mut known) {
            Some(nearest) => format!("unknown field `{field}`; did you mean `{nearest}`?"),
            None => format!("unknown field `{field}`"),
        };
    }
    match words.strip_prefix("invalid ") {
        Some("u8" | "u16" | "u32" | "u64") => "expected a whole number that is not negative".into(),
        Some("i32" | "i64") => "expected a whole number".into(),
        _ => words.to_owned(),
    }
}

/// The line that is wrong, with a mark below the column.
fn wrong(file: &str, text: &str, place: Option<(usize, usize)>, words: &str) -> Failure {
    let fields = "the fields are described in docs/cli.md";
    let words = reworded(words);
    let Some((line, column)) = place.filter(|(line, _)| *line > 0) else {
        return Failure::misuse(format!("{file}: {words}")).hint(fields);
    };
    let shown: String = text.lines().nth(line - 1).unwrap_or_default().chars().take(160).collect();
    let column = column.clamp(1, shown.chars().count() + 1);
    let number = line.to_string();
    let margin = " ".repeat(number.len());
    let mark = " ".repeat(column - 1);
    Failure::misuse(format!(
        "{file}:{line}:{column}: {words}\n {margin} |\n {number} | {shown}\n {margin} | {mark}^"
    ))
    .hint(fields)
}
