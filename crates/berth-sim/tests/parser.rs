//! What people are told about mistakes. Each transcript is what `berth sim run` prints.

use berth_sim::scenario::Scenario;

/// Two projects and a node, and then the lines under test, which start at line 4.
fn transcript(lines: &str) -> String {
    let text = format!("nodes 2 x dgx1\nproject team-a quota=4\nproject team-b quota=2\n{lines}");
    match Scenario::parse("t.berth", &text) {
        Ok(scenario) => {
            let warnings = scenario.warnings.iter();
            let texts: Vec<_> = warnings.map(|warning| format!("warning: {}", warning.text)).collect();
            texts.join("\n")
        }
        Err(problems) => problems.to_string(),
    }
}

macro_rules! told {
    ($lines:expr, $expected:expr) => {
        assert_eq!(transcript($lines), $expected, "for {:?}", $lines)
    };
}

#[test]
fn misspelt_words_are_answered_with_the_nearest_known_one() {
    told!("submitt a -p team-a", "t.berth:4: unknown word `submitt`; did you mean `submit`?");
    told!("submit a -p team-aa", "t.berth:4: there is no project `team-aa`; did you mean `team-a`?");
    told!(
        "submit a -p team-a --gpu-memry 4Gi",
        "t.berth:4: unknown flag `--gpu-memry`; did you mean `--gpu-memory`?\n\
         t.berth:4: unknown flag `4Gi`; the flags are listed in docs/scenarios.md"
    );
    told!("project x quotta=4", "t.berth:4: unknown setting `quotta`; did you mean `quota`?");
    told!("cordon nod1", "t.berth:4: there is no node `nod1`; did you mean `node1`?");
    told!("nodes 2 x dgx3", "t.berth:4: unknown kind of node `dgx3`; did you mean `dgx1`?");
    told!(
        "submit job-1 -p team-a\nexpect jobb-1 running",
        "t.berth:5: nothing is called `jobb-1` so far; did you mean `job-1`?"
    );
    told!(
        "submit job-1 -p team-a\nexpect job-1 runing",
        "t.berth:5: cannot read `runing`; did you mean `running`?"
    );
    told!("delete job-1", "t.berth:4: there is no workload `job-1` so far");
}

#[test]
fn amounts_that_are_none_are_refused() {
    told!("submit a -p team-a -g 0", "t.berth:4: -g: `0` is nothing; expected more than zero");
    told!("submit a -p team-a -g -1", "t.berth:4: -g: `-1` is negative; expected an amount of zero or more");
    told!(
        "submit a -p team-a -g 1.5",
        "t.berth:4: -g: 1.5 is neither whole nor below 1; expected for example 2, or `-g 0.5 --devices 3`"
    );
    told!(
        "submit a -p team-a -g 200",
        "t.berth:4: -g: one worker cannot have 200 GPUs; expected at most 64, or more `--workers`"
    );
    told!(
        "submit a -p team-a -g two",
        "t.berth:4: -g: `two` is not a number; write for example `2` or `0.5`"
    );
    told!("submit a -p team-a -g 0.1234567", "t.berth:4: -g: `0.1234567` has more than 6 decimals");
    told!(
        "submit a -p team-a --gpu-memory 4Q",
        "t.berth:4: --gpu-memory: `4Q` has an unknown unit; expected one of Ki, Mi, Gi, Ti, K, M, G, T"
    );
    told!("project x quota=-4", "t.berth:4: quota: `-4` is negative; expected an amount of zero or more");
    told!("wait 10", "t.berth:4: wait: `10` has an unknown unit; expected one of ms, s, m, h, d");
    told!("wait 99999d", "t.berth:4: wait: `99999d` is too long; expected at most ten years");
    told!("submit a -p team-a -g 1 --runs 0s", "t.berth:4: --runs: `0s` is nothing; expected more than zero");
}

#[test]
fn gangs_have_bounds() {
    told!(
        "submit a -p team-a -g 1 --workers 100001",
        "t.berth:4: --workers: expected a whole number from 1 to 100000, found `100001`"
    );
    told!(
        "submit a -p team-a -g 1 --workers 2 --min-workers 3",
        "t.berth:4: --min-workers: 3 is above --workers 2"
    );
}

#[test]
fn names_are_given_once_and_are_names() {
    told!(
        "project team-a",
        "t.berth:4: there is a project `team-a` already; write `set project team-a` to change it"
    );
    told!("node node1", "t.berth:4: there is a node `node1` already; names are given once");
    told!(
        "submit a -p team-a\nsubmit a -p team-b",
        "t.berth:5: there is a workload `a` already; names are given once"
    );
    told!("project free", "t.berth:4: `free` is a word of the language and cannot name a project");
    told!(
        "submit 9to5 -p team-a",
        "t.berth:4: `9to5` cannot name a workload; expected a letter, then letters, digits, `-`, `_` or `.`, at most 63 in all"
    );
}

#[test]
fn departments_cannot_contain_themselves() {
    told!("department x parent=x", "t.berth:4: department `x` would be part of itself");
    told!(
        "department x\ndepartment y parent=x\nset department x parent=y",
        "t.berth:6: department `x` would be part of itself, because `y` is part of it"
    );
    told!(
        "project z department=research",
        "t.berth:4: there is no department `research`; expected one that a `department` line above declares"
    );
}

#[test]
fn contradictions_are_named() {
    told!(
        "submit a -p team-a -g 1 --gpu-memory 4Gi",
        "t.berth:4: `-g` and `--gpu-memory` say the same thing twice; expected one of them"
    );
    told!(
        "submit a -p team-a --interactive --inference",
        "t.berth:4: `--inference` names a second kind; expected one"
    );
    told!(
        "submit a -p team-a --model V100",
        "t.berth:4: `--model` names a GPU model, but no GPU is asked for; expected `-g` or `--gpu-memory`"
    );
    told!("submit a -g 1", "t.berth:4: no project is named; expected `-p PROJECT`");
    told!(
        "submit a -p team-a\ndelete -p team-b a",
        "t.berth:5: workload `a` belongs to another project than the one after `-p`"
    );
    told!("project x quota=1 quota=2", "t.berth:4: quota: given 2 times; expected it once");
    told!("title \"open", "t.berth:4: a quote is not closed; expected a second `\"`");
    told!(
        "submit a -p team-a\npolicy moves=off",
        "t.berth:5: `policy` holds for the whole scenario; expected it before the first submit"
    );
}

#[test]
fn every_mistake_of_a_file_is_shown_at_once() {
    told!(
        "cordon\nwait until tomorrow\nset team-a quota=1",
        "t.berth:4: expected the name of a node, as in `cordon node1`\n\
         t.berth:5: expected `wait 10s`, `wait until settled` or `wait until idle`\n\
         t.berth:6: expected `set project NAME key=value` or `set department NAME key=value`"
    );
    let many = "bogus-statement\n".repeat(25);
    assert!(transcript(&many).ends_with("t.berth: and 5 more problems"));
}

#[test]
fn promises_that_cannot_be_kept_are_warned_of() {
    told!("project x quota=20", "warning: the quotas in pool default add up to 26 GPUs; its nodes have 16");
    told!(
        "node h gpus=2 label.kind=h\nproject x quota=4 train-on=kind:h",
        "warning: project x has a quota of 4 GPUs; the nodes its training may use have 2"
    );
    told!(
        "department d quota=2\nproject x department=d quota=3",
        "warning: the projects of department d have quotas of 3 GPUs; its own is 2, and holds"
    );
    told!("submit a -p team-a -g 1 --pool fast", "warning: no node is in pool fast, so a can never start");
}

#[test]
fn a_pasted_command_of_the_report_is_understood() {
    told!("submit a-1-1-jupyter -i jupyter/base-notebook -g 1 --interactive -p team-a", "");
}
