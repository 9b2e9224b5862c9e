//! What one line says.

use crate::Report;
use berth_types::Span;
use regex::Regex;
use serde_json::Value;

/// A pattern of a user may not grow beyond this when it is compiled.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Names and values of metrics beyond these are not kept.
const METRICS_MAX: usize = 32;
const TEXT_BYTES_MAX: usize = 64;

/// What a line tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Progress(Report),
    Checkpoint,
}

/// Reads lines. Without a pattern of the user it knows the forms that common trainers print.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    pattern: Option<Regex>,
}

impl Parser {
    pub(crate) fn new(pattern: Option<&str>) -> Result<Self, String> {
        let build = |text: &str| {
            let built = regex::RegexBuilder::new(text).size_limit(PATTERN_BYTES_MAX).build();
            built.map_err(|error| format!("the progress pattern does not read: {error}"))
        };
        Ok(Self { pattern: pattern.map(build).transpose()? })
    }

    pub(crate) fn parse(&self, line: &[u8]) -> Option<Found> {
        let line = String::from_utf8_lossy(line);
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("berth") {
            if rest == ".checkpoint" || rest.starts_with(".checkpoint ") {
                return Some(Found::Checkpoint);
            }
            if let Some(json) = rest.strip_prefix(':') {
                return from_json(json).map(Found::Progress);
            }
        }
        let report = match &self.pattern {
            Some(pattern) => from_pattern(pattern, line),
            None => from_common_forms(line),
        };
        report.filter(|report| *report != Report::default()).map(Found::Progress)
    }
}

/// `berth: {"epoch": 3, "loss": 0.2}`
fn from_json(text: &str) -> Option<Report> {
    let Value::Object(fields) = serde_json::from_str(text.trim()).ok()? else { return None };
    let mut report = Report::default();
    for (name, value) in fields {
        let text = match value {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            Value::Object(metrics) if name == "metrics" => {
                for (name, value) in metrics {
                    if let Value::Number(_) | Value::String(_) = value {
                        let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
                        set_metric(&mut report, &name, &text);
                    }
                }
                continue;
            }
            _ => continue,
        };
        set(&mut report, &name, &text);
    }
    Some(report)
}

/// Named groups have the names of the report's fields; others are metrics.
fn from_pattern(pattern: &Regex, line: &str) -> Option<Report> {
    let captures = pattern.captures(line)?;
    let mut report = Report::default();
    for name in pattern.capture_names().flatten() {
        if let Some(group) = captures.name(name) {
            set(&mut report, name, group.as_str());
        }
    }
    Some(report)
}

fn set(report: &mut Report, name: &str, text: &str) {
    let text = text.trim();
    match name {
        "epoch" => report.epoch = whole(text),
        "epochs" => report.epochs = whole(text),
        "step" => report.step = whole(text),
        "steps" => report.steps = whole(text),
        "loss" => report.loss = decimal(text),
        "accuracy" | "acc" => report.accuracy = decimal(text),
        "throughput" | "samples_per_second" | "images_per_second" | "samples_per_sec" | "images_per_sec" => {
            report.throughput = decimal(text)
        }
        "percent" => report.percent = percent(text),
        "utilisation" | "utilization" => report.utilisation = percent(text),
        "eta" => report.eta = span(text),
        _ => set_metric(report, name, text),
    }
}

fn set_metric(report: &mut Report, name: &str, text: &str) {
    let fits = name.len() <= TEXT_BYTES_MAX && report.metrics.len() < METRICS_MAX;
    if let (true, Some(value)) = (fits, decimal(text)) {
        report.metrics.insert(name.to_owned(), value);
    }
}

/// `epoch 3/10`, `Epoch: 3`, `step 120/400`, `loss: 0.123`, `accuracy=0.9`, `ETA 0:01:20`, `37%|###`, and the bare
/// `120/400 [===>...]` of Keras. Written by hand: a shim must be small and quick to start, and regular expressions are neither.
fn from_common_forms(line: &str) -> Option<Report> {
    let mut report = Report::default();
    let bytes = line.as_bytes();
    let mut index = 0;
    // The number that stands before a word, as in `80 samples/sec`.
    let mut before = None;
    while index < bytes.len() {
        let byte = bytes[index];
        if byte.is_ascii_alphabetic() {
            let start = index;
            while index < bytes.len() && (bytes[index].is_ascii_alphanumeric() || bytes[index] == b'_') {
                index += 1;
            }
            let word = &line[start..index];
            let touches = start > 0 && (bytes[start - 1].is_ascii_alphanumeric() || bytes[start - 1] == b'.');
            match rate(line, word, index).filter(|_| !touches) {
                Some(end) => {
                    let after = value_after(&line[end..])
                        .filter(|_| line[end..].trim_start().starts_with([':', '=']));
                    report.throughput = after.or(before.take()).or(report.throughput.take());
                    index = end;
                }
                None if !touches => index = after_word(&mut report, line, word, index),
                None => {}
            }
            before = None;
        } else if byte.is_ascii_digit() {
            let start = index;
            while index < bytes.len() && (bytes[index].is_ascii_digit() || bytes[index] == b'.') {
                index += 1;
            }
            let number = &line[start..index];
            before = decimal(number);
            if bytes[index..].starts_with(b"%|") {
                report.percent = percent(number);
            } else if let Some(rest) = line[index..].strip_prefix('/')
                && let Some((total, after)) = leading_digits(rest)
                && report.step.is_none()
                && after.trim_start().starts_with('[')
            {
                (report.step, report.steps) = (whole(number), whole(total));
                index += 1 + total.len();
            }
        } else {
            index += 1;
        }
    }
    let says_no_more = report.step.is_none() && report.percent.is_none();
    if report.epochs.is_some() && says_no_more && is_heading(line) {
        // It stands above an epoch that begins; a line that also says how it went stands below.
        report.step = Some(0);
    }
    Some(report)
}

/// Whether a line says which epoch it is, and nothing else.
fn is_heading(line: &str) -> bool {
    let words = line.split(|letter: char| !letter.is_alphabetic());
    let mut words = words.filter(|word| !word.is_empty() && !word.eq_ignore_ascii_case("of"));
    let is_named =
        words.next().is_some_and(|word| word.eq_ignore_ascii_case("epoch")) && words.next().is_none();
    is_named
        && line.split(|letter: char| !letter.is_ascii_digit()).filter(|part| !part.is_empty()).count() == 2
}

/// Reads what follows a word that means something. Gives where to go on.
fn after_word(report: &mut Report, line: &str, word: &str, index: usize) -> usize {
    let rest = line[index..].trim_start_matches([' ', ':', '=', '[', '#']);
    let is = |name: &str| word.eq_ignore_ascii_case(name);
    let end = |rest: &str| line.len() - rest.len();
    if is("epoch") || is("step") || is("iteration") || is("iter") {
        let Some((number, after)) = leading_digits(rest) else { return index };
        let total = after.trim_start().strip_prefix('/').or_else(|| after.trim_start().strip_prefix("of "));
        let total = total.and_then(|text| leading_digits(text.trim_start()));
        // `epoch 3.5` is no epoch that can be counted.
        if total.is_none() && after.starts_with(|next: char| next == '.' || next.is_alphabetic()) {
            return index;
        }
        let (count, totals) = if is("epoch") {
            (&mut report.epoch, &mut report.epochs)
        } else {
            (&mut report.step, &mut report.steps)
        };
        *count = whole(number);
        if let Some((text, after)) = total {
            *totals = whole(text);
            return end(after);
        }
        return end(after);
    }
    // `val_loss` and the like are metrics of their own and never the loss.
    let value = || value_after(rest);
    if is("loss") {
        report.loss = value().or(report.loss.take());
    } else if is("accuracy") || is("acc") {
        report.accuracy = value().or(report.accuracy.take());
    } else if is("throughput") {
        report.throughput = value().or(report.throughput.take());
    } else if is("utilisation") || is("utilization") {
        report.utilisation = value().and_then(|text| percent(&text)).or(report.utilisation);
    } else if is("eta") {
        let length = rest.find(|next: char| !(next.is_ascii_alphanumeric() || ":.".contains(next)));
        report.eta = span(&rest[..length.unwrap_or(rest.len())]).or(report.eta);
    } else if word.to_ascii_lowercase().starts_with("val_")
        && let Some(value) = value()
    {
        set_metric(report, &word.to_ascii_lowercase(), &value);
    }
    index
}

/// Where a rate of samples ends that begins with a word, such as `images/sec`.
fn rate(line: &str, word: &str, index: usize) -> Option<usize> {
    const SAMPLES: [&str; 7] = ["samples", "sample", "images", "image", "imgs", "img", "examples"];
    if !SAMPLES.iter().any(|name| word.eq_ignore_ascii_case(name)) {
        return None;
    }
    let rest = line[index..].strip_prefix('/')?;
    let length = rest.find(|next: char| !next.is_ascii_alphabetic()).unwrap_or(rest.len());
    let unit = rest[..length].to_ascii_lowercase();
    ["s", "sec", "second"].contains(&unit.as_str()).then_some(index + 1 + length)
}

/// The number that follows, after a colon or an equals sign.
fn value_after(rest: &str) -> Option<String> {
    let rest = rest.trim_start_matches([' ', ':', '=', '[', '#']);
    let length = rest.find(|next: char| !(next.is_ascii_digit() || "+-.eE".contains(next)));
    decimal(&rest[..length.unwrap_or(rest.len())])
}

fn leading_digits(text: &str) -> Option<(&str, &str)> {
    let length = text.find(|next: char| !next.is_ascii_digit()).unwrap_or(text.len());
    (length > 0).then(|| text.split_at(length))
}

fn whole(text: &str) -> Option<u64> {
    text.parse().ok()
}

fn percent(text: &str) -> Option<u8> {
    let whole = text.trim_end_matches('%').split('.').next()?;
    whole.parse().ok().filter(|percent| *percent <= 100)
}

/// The text, when it is a decimal number; it is never turned into a float.
fn decimal(text: &str) -> Option<String> {
    let text = text.trim_end_matches(['.', ',', ';', '-', '+', 'e', 'E']);
    let body = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = body.split_once(['e', 'E']).unwrap_or((body, "0"));
    let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (front, back) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let sound = (digits(front) || front.is_empty()) && (digits(back) || back.is_empty()) && digits(exponent);
    let some = front.len() + back.len() > 0 && !mantissa.is_empty() && mantissa != ".";
    (sound && some && text.len() <= TEXT_BYTES_MAX).then(|| text.to_owned())
}

/// `80`, `80s`, `80ms`, `1:20`, `0:01:20`, `3m`.
fn span(text: &str) -> Option<Span> {
    let text = text.trim_end_matches('.');
    if text.contains(':') {
        let mut secs = 0_u64;
        for part in text.split(':') {
            let part: u64 = part.split('.').next()?.parse().ok()?;
            secs = secs.checked_mul(60)?.checked_add(part)?;
        }
        return Some(Span(secs.checked_mul(1000)?));
    }
    text.parse().ok().or_else(|| format!("{text}s").parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(line: &str) -> Report {
        match Parser::default().parse(line.as_bytes()) {
            Some(Found::Progress(report)) => report,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn nothing(line: &str) {
        assert_eq!(Parser::default().parse(line.as_bytes()), None, "{line}");
    }

    #[test]
    fn common_forms_are_understood() {
        let found = report("epoch 3/10");
        assert_eq!((found.epoch, found.epochs), (Some(3), Some(10)));
        assert_eq!(report("Epoch: 3").epoch, Some(3));
        assert_eq!(report("Epoch [4/20], loss: 0.123").epochs, Some(20));
        assert_eq!(report("Epoch 4 of 20").step, Some(0), "it begins");
        assert_eq!(report("epoch 4/20 took 12 s").step, None, "it is over");
        assert_eq!(report("epoch 4/20 0.234").step, None, "it says how it went");
        assert_eq!(report("Epoch 4/20 50/100 [==>..]").step, Some(50));
        let found = report("step 120/400 loss=1e-3 accuracy=0.9, ETA 0:01:20");
        assert_eq!((found.step, found.steps), (Some(120), Some(400)));
        assert_eq!((found.loss.as_deref(), found.accuracy.as_deref()), (Some("1e-3"), Some("0.9")));
        assert_eq!(found.eta, Some(Span::secs(80)));
        assert_eq!(report(" 37%|###7      | 37/100 [00:01<00:02]").percent, Some(37));
        let found =
            report("120/400 [=======>.....] - ETA: 12s - loss: 0.3021 - accuracy: 0.8712 - val_loss: 0.5");
        assert_eq!((found.step, found.steps, found.eta), (Some(120), Some(400), Some(Span::secs(12))));
        assert_eq!((found.loss.as_deref(), found.accuracy.as_deref()), (Some("0.3021"), Some("0.8712")));
        assert_eq!(found.metrics["val_loss"], "0.5");
    }

    #[test]
    fn throughput_is_found_before_and_after_its_unit() {
        for (line, rate) in [
            ("120/400 [==>..] - 200ms/step - 80.5 samples/sec - utilisation: 92%", "80.5"),
            ("10\timages/sec: 740.1 +/- 0.0 (jitter = 0.0)\t8.327", "740.1"),
            ("total images/sec: 6420.38", "6420.38"),
            ("Total images/sec = 6530.59125", "6530.59125"),
            ("step 3/9 throughput=12.5", "12.5"),
            ("speed 33 img/s", "33"),
        ] {
            assert_eq!(report(line).throughput.as_deref(), Some(rate), "{line}");
        }
        let found = report("120/400 [==>..] - 200ms/step - 80.5 samples/sec - utilisation: 92%");
        assert_eq!((found.step, found.steps, found.utilisation), (Some(120), Some(400), Some(92)));
        assert_eq!(report(r#"berth: {"throughput": 99.5}"#).throughput.as_deref(), Some("99.5"));
        nothing("images/second are many");
        nothing("copied 3 images to disk");
    }

    #[test]
    fn a_line_of_ours_is_read_exactly() {
        let found = report(
            r#"berth: {"epoch":3,"epochs":10,"loss":0.2,"utilisation":93,"eta":"80s","perplexity":12.5}"#,
        );
        assert_eq!((found.epoch, found.epochs, found.utilisation), (Some(3), Some(10), Some(93)));
        assert_eq!((found.loss.as_deref(), found.eta), (Some("0.2"), Some(Span::secs(80))));
        assert_eq!(found.metrics["perplexity"], "12.5");
        assert_eq!(Parser::default().parse(b"berth.checkpoint"), Some(Found::Checkpoint));
        nothing("berth: {nonsense");
    }

    #[test]
    fn other_lines_say_nothing() {
        for line in [
            "",
            "hello",
            "lost 3 packets",
            "date 2020/10/11",
            "epochs are long",
            "step by step",
            "/a/b/c.py:12",
        ] {
            nothing(line);
        }
        nothing("\u{fffd}\u{fffd} epoch");
        nothing("epoch 99999999999999999999999");
    }

    #[test]
    fn a_pattern_of_the_user_replaces_the_forms() {
        let parser =
            Parser::new(Some(r"it=(?P<step>\d+) of (?P<steps>\d+) ppl=(?P<perplexity>[\d.]+)")).unwrap();
        let Some(Found::Progress(found)) = parser.parse(b"it=5 of 9 ppl=3.25") else { panic!("it matches") };
        assert_eq!((found.step, found.steps), (Some(5), Some(9)));
        assert_eq!(found.metrics["perplexity"], "3.25");
        assert_eq!(parser.parse(b"epoch 3/10"), None);
        assert!(Parser::new(Some("(")).is_err());
        assert!(Parser::new(Some(r"(\w{100}){100}")).is_err(), "a pattern has a bound");
    }
}
