//! Paths and queries. Everything that is not a plain letter or digit is escaped, so that no name can become a path.

use serde::Serialize;
use serde_json::Value;
use std::fmt::Write;

/// `/api/v1` and the parts, each escaped.
pub(crate) fn path(parts: &[&str]) -> String {
    let mut path = format!("/api/{}", berth_api::VERSION);
    for part in parts {
        path.push('/');
        escape(part, &mut path);
    }
    path
}

/// A path with the fields of `query` that are set.
pub(crate) fn with_query(mut path: String, query: &impl Serialize) -> String {
    // The types of queries hold texts, numbers and truths only; what is no object has no fields to send.
    let Ok(Value::Object(fields)) = serde_json::to_value(query) else { return path };
    let mut separator = '?';
    for (name, value) in fields {
        let text = match value {
            Value::Null | Value::Bool(false) if is_default_false(&name) => continue,
            Value::Null | Value::Array(_) | Value::Object(_) => continue,
            Value::String(text) => text,
            other => other.to_string(),
        };
        path.push(separator);
        separator = '&';
        escape(&name, &mut path);
        path.push('=');
        escape(&text, &mut path);
    }
    path
}

/// Switches that are off when they are absent need not be sent.
fn is_default_false(name: &str) -> bool {
    matches!(name, "follow" | "objects")
}

fn escape(text: &str, into: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => into.push(char::from(byte)),
            // A part of dots alone would climb in the path; a server may resolve it before it looks at the route.
            b'.' if !text.bytes().all(|byte| byte == b'.') => into.push('.'),
            _ => {
                let _ = write!(into, "%{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::{LogQuery, Status, WorkloadQuery};

    #[test]
    fn a_name_never_becomes_a_path() {
        assert_eq!(path(&["workloads", "team-a", "hyper1"]), "/api/v1/workloads/team-a/hyper1");
        assert_eq!(path(&["workloads", "..", "a/b?c#d"]), "/api/v1/workloads/%2E%2E/a%2Fb%3Fc%23d");
        assert_eq!(path(&["nodes", "dgx-1.local"]), "/api/v1/nodes/dgx-1.local");
    }

    #[test]
    fn only_fields_that_are_set_are_sent() {
        let query = WorkloadQuery {
            project: Some("team a&b".into()),
            status: Some(Status::Running),
            finished: Some(false),
            ..WorkloadQuery::default()
        };
        assert_eq!(with_query("/x".into(), &query), "/x?finished=false&project=team%20a%26b&status=Running");
        let query = LogQuery { tail: Some(5), ..LogQuery::default() };
        assert_eq!(with_query("/x".into(), &query), "/x?tail=5");
        assert_eq!(with_query("/x".into(), &LogQuery::default()), "/x");
    }
}
