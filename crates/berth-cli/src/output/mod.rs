//! How answers are written: one trait for what is shown, one place that knows the forms.

pub(crate) mod table;
pub(crate) mod time;

use clap::{Args, ValueEnum};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use time::Clock;

/// The forms of data on stdout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For people
    #[default]
    Table,
    /// For people with wide screens
    Wide,
    /// As the API says it
    Json,
    /// The same as YAML
    Yaml,
    /// Only names, one a line
    Name,
}

#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// How the answer is written
    #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
    output: Form,
    /// The same as `--output json`
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// Tables without their first line
    #[arg(long)]
    no_headers: bool,
}

impl OutputArgs {
    pub(crate) fn form(self) -> Form {
        if self.json { Form::Json } else { self.output }
    }
}

/// Whose words are used: ours, or those of the 2020 report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Spelling {
    #[default]
    Berth,
    Runai,
}

impl Spelling {
    /// The name of the command, for what people are told to type.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Berth => "berth",
            Self::Runai => "runai",
        }
    }
}

/// How text for people looks.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    pub(crate) wide: bool,
    pub(crate) headers: bool,
    pub(crate) colour: bool,
    pub(crate) clock: Clock,
    pub(crate) spelling: Spelling,
    /// The project of commands that name none, which lists mark.
    pub(crate) default_project: Option<String>,
}

impl Look {
    /// The look that was asked for, on this machine.
    pub(crate) fn of(output: OutputArgs) -> Self {
        Self {
            wide: output.form() == Form::Wide,
            headers: !output.no_headers,
            colour: has_colour(),
            clock: Clock::of_machine(),
            spelling: Spelling::default(),
            default_project: None,
        }
    }

    pub(crate) fn table(&self, table: &table::Table) -> String {
        table.render(self.headers, self.colour)
    }
}

/// Something that can be shown.
pub(crate) trait Show: Serialize {
    /// For people: a table, or a page about one thing.
    fn text(&self, look: &Look) -> String;
    /// The names of what is shown.
    fn names(&self) -> Vec<String>;
}

/// Renders what is shown in the form that was asked for.
pub(crate) fn render(form: Form, look: &Look, what: &impl Show) -> anyhow::Result<String> {
    Ok(match form {
        Form::Table | Form::Wide => what.text(look),
        Form::Json => serde_json::to_string_pretty(what)? + "\n",
        Form::Yaml => serde_saphyr::to_string(what)?,
        Form::Name => what.names().into_iter().map(|name| name + "\n").collect(),
    })
}

/// Whether stdout shows colours: a terminal, and nobody said otherwise (<https://no-color.org>).
pub(crate) fn has_colour() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR")
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
        && io::stdout().is_terminal()
}

/// Writes data to stdout, and says whether anybody still reads. A reader that has seen enough, such as `head`, is no failure.
pub(crate) fn write_part(data: &[u8]) -> anyhow::Result<bool> {
    match io::stdout().lock().write_all(data).and_then(|()| io::stdout().flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Words {
        #[command(flatten)]
        output: OutputArgs,
    }

    #[test]
    fn json_has_a_short_way_that_contradicts_no_other_form() {
        for words in [["berth", "--json"].as_slice(), &["berth", "-o", "json"]] {
            assert_eq!(Words::try_parse_from(words).expect("known words").output.form(), Form::Json);
        }
        assert_eq!(Words::try_parse_from(["berth"]).expect("known words").output.form(), Form::Table);
        let error = Words::try_parse_from(["berth", "--json", "-o", "wide"]).expect_err("one form");
        assert!(error.to_string().contains("cannot be used with"), "{error}");
    }
}
