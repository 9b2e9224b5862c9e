//! Names that people give: what cannot be one is refused.

use berth_api::{NAME_RULE, Problem};
pub(crate) use berth_api::{nearest, quoted as shown};

/// Checks a name.
pub(crate) fn check(field: &str, name: &str) -> Result<(), Problem> {
    match berth_api::is_name(name) {
        true => Ok(()),
        false => Err(Problem::invalid(field, format!("{} is not a name", shown(name))).hint(NAME_RULE)),
    }
}
