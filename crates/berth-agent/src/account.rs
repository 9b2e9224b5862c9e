//! Who a task runs as, by the machine's own list of users, wherever that is kept.

use nix::{
    errno::Errno,
    unistd::{Gid, Group, Uid, User, getegid, geteuid, getgrouplist},
};
use std::{collections::BTreeMap, ffi::CString, path::PathBuf};

/// Longer than any name that a machine accepts.
const NAME_BYTES_MAX: usize = 256;

/// Everything that makes a process somebody's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// Every other group whose files it may use.
    pub(crate) groups: Vec<u32>,
    /// Its name; none when the machine knows the number only.
    name: Option<String>,
    /// Whether that name is ours, and not the machine's.
    is_unlisted: bool,
    /// Its folder; none when there is no such folder.
    home: Option<PathBuf>,
    shell: Option<PathBuf>,
}

impl Account {
    /// What the machine knows about a user. One that is not listed has its number and nothing else.
    pub(crate) fn of(user: u32, group: u32) -> Result<Self, String> {
        let Some(listed) = User::from_uid(Uid::from_raw(user)).map_err(unreadable)? else {
            return Ok(Self {
                user,
                group,
                groups: Vec::new(),
                name: None,
                is_unlisted: false,
                home: None,
                shell: None,
            });
        };
        let name = CString::new(listed.name.as_str()).map_err(|error| error.to_string())?;
        let groups = getgrouplist(&name, Gid::from_raw(group)).map_err(unreadable)?;
        let mut groups: Vec<u32> =
            groups.into_iter().map(Gid::as_raw).filter(|other| *other != group).collect();
        groups.sort_unstable();
        groups.dedup();
        Ok(Self {
            user,
            group,
            groups,
            name: Some(listed.name),
            is_unlisted: false,
            home: Some(listed.dir).filter(|home| home.is_dir()),
            shell: Some(listed.shell).filter(|shell| shell.is_absolute()),
        })
    }

    /// Who has no name on this machine is called as Berth calls them, if nobody else is.
    pub(crate) fn called(self, user: &str) -> Self {
        if self.name.is_some() || user.is_empty() || user.contains([':', '\n', '\0']) {
            return self;
        }
        let is_taken = User::from_name(user).is_ok_and(|listed| listed.is_some());
        let name = if is_taken { format!("berth-{user}") } else { user.to_owned() };
        Self { name: Some(name), is_unlisted: true, ..self }
    }

    /// Its lines in the lists of users and groups, if it has a name and the machine does not know it.
    pub(crate) fn lines(&self, work: &str) -> Option<[String; 2]> {
        let name = self.name.as_ref().filter(|_| self.is_unlisted)?;
        let (user, group) = (self.user, self.group);
        Some([format!("{name}:x:{user}:{group}::{work}:/bin/sh\n"), format!("{name}:x:{group}:\n")])
    }

    /// What programs ask their environment instead of the machine. Who has no folder is at home where its work is.
    pub(crate) fn variables(&self, work: &str) -> BTreeMap<String, String> {
        let name = self.name.clone().unwrap_or_else(|| self.user.to_string());
        let home = self.home.as_ref().map_or_else(|| work.to_owned(), |home| home.display().to_string());
        let shell =
            self.shell.as_ref().map_or_else(|| "/bin/sh".to_owned(), |shell| shell.display().to_string());
        [("USER", name.clone()), ("LOGNAME", name), ("HOME", home), ("SHELL", shell)]
            .map(|(variable, value)| (variable.to_owned(), value))
            .into()
    }
}

/// Whether this agent can run something as somebody else.
pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

/// The user and group that a person means by `alice`, `alice:vision`, `1000` or `1000:1000`. The text says why there is no such
/// user, or why nothing can be run as that user here.
pub(crate) fn find(text: &str) -> Result<(u32, u32), String> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let bad = |word: &str| word.is_empty() || word.len() > NAME_BYTES_MAX || word.contains(char::is_control);
    if bad(user) || group.is_some_and(bad) {
        return Err("a user is written as NAME, UID, NAME:GROUP or UID:GID".into());
    }
    let listed = match number(user) {
        Some(uid) => User::from_uid(Uid::from_raw(uid?)),
        None => User::from_name(user),
    }
    .map_err(unreadable)?;
    let uid = match (&listed, number(user)) {
        (Some(listed), _) => listed.uid.as_raw(),
        (None, Some(uid)) => uid?,
        (None, None) => return Err(format!("this machine has no user `{user}`")),
    };
    let gid = match group {
        None => listed.map(|listed| listed.gid.as_raw()).ok_or_else(|| {
            format!("this machine does not know user {uid}, so its group must be named: `{uid}:GID`")
        })?,
        Some(group) => match number(group) {
            Some(gid) => gid?,
            None => Group::from_name(group)
                .map_err(unreadable)?
                .map(|listed| listed.gid.as_raw())
                .ok_or_else(|| format!("this machine has no group `{group}`"))?,
        },
    };
    allow((geteuid().as_raw(), getegid().as_raw()), (uid, gid))
}

/// Root may become anybody, and everybody is themselves.
fn allow(own: (u32, u32), asked: (u32, u32)) -> Result<(u32, u32), String> {
    if own.0 == 0 || own == asked {
        return Ok(asked);
    }
    Err(format!(
        "this server runs as user {} and not as root, so it cannot run work as user {} and group {}: start `berth up` as root, \
         or submit without a user",
        own.0, asked.0, asked.1
    ))
}

/// The number that is written, if it is one; the largest means "nobody in particular" to the kernel.
fn number(word: &str) -> Option<Result<u32, String>> {
    word.bytes().all(|byte| byte.is_ascii_digit()).then(|| {
        word.parse()
            .ok()
            .filter(|number| *number != u32::MAX)
            .ok_or_else(|| format!("{word} is no number of a user or group"))
    })
}

fn unreadable(error: Errno) -> String {
    format!("this machine's list of users cannot be read: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_and_by_number() {
        let own = geteuid();
        let listed = User::from_uid(own).unwrap().expect("whoever runs the tests is listed");
        let pair = (own.as_raw(), listed.gid.as_raw());
        if getegid() == listed.gid || own.is_root() {
            assert_eq!(find(&listed.name), Ok(pair));
            assert_eq!(find(&own.to_string()), Ok(pair));
            assert_eq!(find(&format!("{}:{}", listed.name, listed.gid)), Ok(pair));
        }
    }

    #[test]
    fn what_is_no_user_is_said() {
        for (text, why) in [
            ("", "written as"),
            (":", "written as"),
            ("1:", "written as"),
            ("a\0b", "written as"),
            ("a\nb", "written as"),
            ("nobody-of-that-name", "no user `nobody-of-that-name`"),
            ("root:no-such-group", "no group `no-such-group`"),
            ("4294967295", "no number"),
            ("99999999999", "no number"),
            ("0:4294967295", "no number"),
            ("-1", "no user `-1`"),
            ("3999999999", "`3999999999:GID`"),
        ] {
            let message = find(text).expect_err(text);
            assert!(message.contains(why), "{text:?}: {message}");
        }
        assert!(find(&"x".repeat(10_000)).unwrap_err().len() < 200);
    }

    #[test]
    fn somebody_else_needs_root() {
        assert_eq!(allow((0, 0), (4711, 4712)), Ok((4711, 4712)));
        assert_eq!(allow((4711, 4712), (4711, 4712)), Ok((4711, 4712)));
        for asked in [(4711, 0), (0, 4712), (0, 0), (4711, 4713)] {
            let message = allow((4711, 4712), asked).unwrap_err();
            assert!(message.contains("as root"), "{message}");
        }
    }

    #[test]
    fn who_is_not_listed_is_at_home_at_work() {
        let account = Account::of(3_999_999_999, 7).unwrap();
        assert_eq!((account.user, account.group, &account.groups[..]), (3_999_999_999, 7, &[][..]));
        let variables = account.variables("/work/17");
        assert_eq!(variables["HOME"], "/work/17");
        assert_eq!(variables["USER"], "3999999999");
        assert_eq!(account.lines("/w"), None, "it has no name");
        let called = account.clone().called("ada@example.org");
        assert_eq!(called.variables("/w")["USER"], "ada@example.org");
        let lines = called.lines("/w").expect("a name of ours");
        assert_eq!(lines, ["ada@example.org:x:3999999999:7::/w:/bin/sh\n", "ada@example.org:x:7:\n"]);
        assert_eq!(
            account.clone().called("root").variables("/w")["USER"],
            "berth-root",
            "another has that name"
        );
        assert_eq!(account.clone().called("a:b").lines("/w"), None);
    }
}
