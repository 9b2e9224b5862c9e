//! Values of single flags, as people write them.

use berth_api::{MountRequest, PriorityName, VolumeMount};
use berth_types::Span;

const PRIORITIES: [&str; 7] = ["very-low", "low", "medium", "medium-high", "high", "very-high", "critical"];

pub(crate) fn parse_priority(text: &str) -> Result<PriorityName, String> {
    if let Ok(number) = text.parse() {
        return Ok(PriorityName::Number(number));
    }
    match PRIORITIES.contains(&text) {
        true => Ok(PriorityName::Name(text.to_owned())),
        false => Err(format!("write a number, or one of {}", PRIORITIES.join(", "))),
    }
}

/// A span, in whole seconds rounded up, so that a limit is never shorter than what was written.
pub(crate) fn parse_secs(text: &str) -> Result<u64, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}; write for example 90m or 12h"))?;
    Ok(span.0.div_ceil(1000))
}

pub(crate) fn parse_environment(text: &str) -> Result<(String, String), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, value.to_owned()),
        None => match std::env::var(text) {
            Ok(value) => (text, value),
            Err(_) => {
                return Err("write NAME=VALUE; only a variable that is set here can be named alone".into());
            }
        },
    };
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("a variable has a name without spaces".into());
    }
    Ok((name.to_owned(), value))
}

pub(crate) fn parse_selector(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((label, value)) if !label.is_empty() => Ok((label.to_owned(), value.to_owned())),
        _ => Err("write LABEL=VALUE".into()),
    }
}

/// `HOST:PATH`, with `:ro` or `:rw` behind it.
pub(crate) fn parse_mount(text: &str) -> Result<MountRequest, String> {
    let (source, target, read_only) =
        parse_pair(text).ok_or("write HOST:PATH, HOST:PATH:ro or HOST:PATH:rw")?;
    if !source.starts_with('/') || !target.starts_with('/') {
        return Err("both folders are absolute paths; a named volume is mounted with --pvc NAME:PATH".into());
    }
    Ok(MountRequest { source, target, read_only })
}

/// `NAME:PATH`, with `:ro` or `:rw` behind it.
pub(crate) fn parse_volume(text: &str) -> Result<VolumeMount, String> {
    let Some((name, target, read_only)) = parse_pair(text) else {
        return Err("write NAME:PATH or NAME:PATH:ro; a new volume is made with `berth volume create`".into());
    };
    if !target.starts_with('/') {
        return Err("where the volume is seen is an absolute path".into());
    }
    crate::names::check("volume", &name).map_err(|failure| failure.to_string())?;
    Ok(VolumeMount { name, target, read_only })
}

fn parse_pair(text: &str) -> Option<(String, String, bool)> {
    let parts: Vec<&str> = text.split(':').collect();
    let (source, target, read_only) = match parts[..] {
        [source, target] => (source, target, false),
        [source, target, "ro"] => (source, target, true),
        [source, target, "rw"] => (source, target, false),
        _ => return None,
    };
    (!source.is_empty() && !target.is_empty()).then(|| (source.to_owned(), target.to_owned(), read_only))
}

/// A port of the workload. The report also knows `HOST:CONTAINER`, where the host's is a wish that cannot be granted twice.
pub(crate) fn parse_port(text: &str) -> Result<u16, String> {
    let (host, container) = text.split_once(':').unwrap_or((text, text));
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    match (port(host), port(container)) {
        (Some(_), Some(container)) => Ok(container),
        _ => Err("a port is a number from 1 to 65535".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_and_mounts_are_told_apart() {
        let mount = |text: &str| parse_mount(text).map(|mount| (mount.source, mount.target, mount.read_only));
        assert_eq!(mount("/mnt:/mnt"), Ok(("/mnt".into(), "/mnt".into(), false)));
        assert_eq!(mount("/a:/b:ro"), Ok(("/a".into(), "/b".into(), true)));
        assert!(mount("data:/b").is_err_and(|error| error.contains("--pvc")));
        assert!(mount("/a").is_err() && mount("/a:/b:xx").is_err() && mount(":/b").is_err());
        let volume =
            |text: &str| parse_volume(text).map(|volume| (volume.name, volume.target, volume.read_only));
        assert_eq!(volume("test:/tmp/pvc1mount"), Ok(("test".into(), "/tmp/pvc1mount".into(), false)));
        assert!(volume("../x:/b").is_err() && volume("class:1Gi:/b").is_err() && volume("a:b").is_err());
    }

    #[test]
    fn ports_priorities_and_spans_are_read() {
        assert_eq!(parse_port("8888"), Ok(8888));
        assert_eq!(parse_port("80:8888"), Ok(8888));
        assert!(parse_port("0").is_err() && parse_port("70000").is_err() && parse_port("a:1").is_err());
        assert_eq!(parse_priority("-5"), Ok(PriorityName::Number(-5)));
        assert_eq!(parse_priority("high"), Ok(PriorityName::Name("high".into())));
        assert!(parse_priority("urgent").is_err());
        assert_eq!(parse_secs("90m"), Ok(5_400));
        assert_eq!(parse_secs("1500ms"), Ok(2));
        assert!(parse_secs("90").is_err_and(|error| error.contains("90m")));
        assert!(parse_environment("=x").is_err());
        assert_eq!(parse_environment("A=b=c"), Ok(("A".into(), "b=c".into())));
    }
}
