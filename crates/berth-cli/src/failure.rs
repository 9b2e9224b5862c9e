//! Exit codes, and failures that say what to type next.

use berth_api::Code;
use berth_client::ClientError;
use berth_tls::TlsError;
use std::{fmt, process::ExitCode};

/// How a command ends. These numbers are promised to scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It was done.
    Done = 0,
    /// It was understood and could not be carried out, or something expected did not hold.
    Failed = 1,
    /// The command, or a file it names, cannot be understood.
    Misused = 2,
    /// The server does not run, or cannot be reached.
    NotRunning = 3,
    /// What was waited for did not happen in time.
    TimedOut = 4,
    /// There is no such thing.
    NotFound = 5,
    /// The server refused.
    Refused = 6,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The codes, for the end of `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed, or what was waited for failed
  2  the command or a file it names cannot be understood
  3  berth is not running, or cannot be reached
  4  what was waited for did not happen in time
  5  there is no such thing
  6  the server refused";

/// What is wrong, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) text: String,
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { exit, text: text.into(), hint: None }
    }

    pub(crate) fn misuse(text: impl Into<String>) -> Self {
        Self::new(Exit::Misused, text)
    }

    #[must_use]
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// What became of a call.
    fn of_call(error: &ClientError) -> Self {
        let start = "start it with `berth up`, or name a running one with --server or --folder";
        match error {
            ClientError::NotRunning { .. } => Self::new(Exit::NotRunning, "berth is not running: start it with `berth up`")
                .hint(format!("{error}; another folder is named with --folder or BERTH_HOME")),
            ClientError::Unreachable { address, source } => {
                Self::new(Exit::NotRunning, format!("berth is not running: nobody answers at {address} ({source})")).hint(start)
            }
            ClientError::Tls { address, source } => Self::of_tls(address, source),
            ClientError::Timeout { .. } | ClientError::Closed { .. } => Self::new(Exit::NotRunning, error.to_string())
                .hint("see whether it still runs with `berth status`"),
            ClientError::Protocol { .. } => Self::new(Exit::NotRunning, error.to_string())
                .hint("is another program listening on that port? `berth status` says where berth was started"),
            ClientError::Address { .. } => Self::misuse(error.to_string()),
            ClientError::Folder { path, source } => {
                Self::new(Exit::NotRunning, format!("cannot read {}: {source}", path.display()))
                    .hint("are you the user who started berth? Another folder is named with --folder")
            }
            ClientError::Unauthorised { .. } => Self::new(Exit::Refused, error.to_string())
                .hint("set BERTH_TOKEN to the content of the file `token` in the server's folder"),
            ClientError::Version { .. } => Self::new(Exit::Refused, error.to_string())
                .hint("use the same release on both sides; restart the server after an update: `berth down`, `berth up`"),
            ClientError::Problem(problem) => {
                let exit = match problem.code {
                    Code::NotFound | Code::Gone => Exit::NotFound,
                    Code::Invalid | Code::Malformed | Code::TooLarge | Code::MethodNotAllowed => Exit::Misused,
                    Code::Internal => Exit::Failed,
                    _ => Exit::Refused,
                };
                let text = match &problem.field {
                    Some(field) if !problem.detail.contains(field.as_str()) => format!("{field}: {}", problem.detail),
                    _ => problem.detail.clone(),
                };
                Self { exit, text, hint: problem.hint.clone() }
            }
        }
    }

    /// What is wrong with a certificate, and how it can be trusted all the same.
    fn of_tls(address: &str, error: &TlsError) -> Self {
        let failure = Self::new(Exit::Refused, format!("{address}: {error}"));
        match error {
            TlsError::Untrusted { fingerprint: Some(fingerprint), .. } => failure.hint(format!(
                "it is {fingerprint}; compare that with what the server printed when it started, and if it is the same,\n  \
                 `berth login {address} --trust-fingerprint {fingerprint}`\n  \
                 or name whoever signed it with --ca-file FILE or BERTH_CA_FILE"
            )),
            TlsError::Another { found, .. } => failure.hint(format!(
                "either it was renewed, or this is another server: ask whoever runs it, then `berth login {address} \
                 --trust-fingerprint {found}`"
            )),
            TlsError::NotTls => {
                let plain = address.replacen("https://", "http://", 1);
                Self { exit: Exit::NotRunning, ..failure }.hint(format!("on this machine, write {plain}"))
            }
            _ => failure,
        }
    }

    /// Any error as a failure; what is not known better is failed.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        if let Some(failure) = error.downcast_ref::<Self>() {
            return failure.clone();
        }
        match error.downcast_ref::<ClientError>() {
            Some(error) => Self::of_call(error),
            None => Self::new(Exit::Failed, format!("{error:#}")),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::Problem;

    fn of(error: ClientError) -> (u8, String) {
        let failure = Failure::of(&error.into());
        (failure.exit as u8, failure.to_string())
    }

    #[test]
    fn a_server_that_does_not_run_is_told_with_the_command_that_starts_it() {
        let (exit, text) = of(ClientError::NotRunning { folder: "/data".into() });
        assert_eq!(exit, 3);
        assert!(text.starts_with("berth is not running: start it with `berth up`\n"), "{text}");
    }

    #[test]
    fn problems_have_the_exit_code_of_what_a_script_would_do_about_them() {
        for (code, exit) in [
            (Code::NotFound, 5),
            (Code::Exists, 6),
            (Code::Forbidden, 6),
            (Code::Invalid, 2),
            (Code::Internal, 1),
            (Code::DiskFull, 6),
        ] {
            assert_eq!(of(ClientError::Problem(Problem::new(code, "x"))).0, exit, "{code:?}");
        }
    }

    #[test]
    fn a_wrong_field_is_named() {
        let problem = Problem::invalid("gpus", "1.5 is neither whole nor below one").hint("use 1 or 2");
        assert_eq!(
            of(ClientError::Problem(problem)).1,
            "gpus: 1.5 is neither whole nor below one\n  use 1 or 2"
        );
    }
}
