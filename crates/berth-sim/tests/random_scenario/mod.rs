//! Random scenarios of small clusters.

use berth_sim::random::SplitMix64;

struct Dice(SplitMix64);

impl Dice {
    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.0.below(choices.len() as u64) as usize]
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.0.below(most - least + 1)
    }

    /// The text with so many chances in a hundred, else nothing.
    fn maybe(&mut self, chances: u8, text: impl FnOnce(&mut Self) -> String) -> String {
        if self.0.percent(chances) { format!(" {}", text(self)) } else { String::new() }
    }
}

/// The lines of a random scenario: nodes, policy, departments, projects, and work with waits and changes between.
pub(crate) fn generate(seed: u64) -> Vec<String> {
    let dice = &mut Dice(SplitMix64::new(seed));
    let mut lines = Vec::new();
    let nodes = dice.between(1, 4);
    for node in 0..nodes {
        let (gpus, model) = (dice.pick(&["1", "2", "4"]), dice.pick(&["V100", "A100"]));
        let (memory, rack) = (dice.pick(&["16Gi", "32Gi"]), dice.between(0, 1));
        lines.push(format!(
            "node n{node} gpus={gpus} model={model} gpu-memory={memory} cpu=16 label.rack=r{rack}"
        ));
    }
    let (reserve, moves) = (dice.pick(&["20s", "1m", "10m"]), dice.pick(&["on", "off"]));
    lines.push(format!("policy reserve-after={reserve} moves={moves}"));
    let departments = dice.between(0, 2);
    for department in 0..departments {
        let quota = dice.maybe(60, |dice| format!("quota={}", dice.between(0, 6)));
        let limit = dice.maybe(20, |dice| format!("limit={}", dice.between(3, 8)));
        let rank = dice.maybe(30, |dice| format!("rank={}", dice.between(0, 1)));
        let parent = if department > 0 { dice.maybe(30, |_| "parent=d0".into()) } else { String::new() };
        lines.push(format!("department d{department}{quota}{limit}{rank}{parent}"));
    }
    let projects = dice.between(1, 4);
    for project in 0..projects {
        let quota = dice.pick(&["0", "0.5", "1", "2", "3", "4"]);
        let settings = [
            dice.maybe(20, |dice| format!("limit={}", dice.between(1, 6))),
            dice.maybe(30, |dice| format!("weight={}", dice.between(0, 3))),
            dice.maybe(30, |dice| format!("rank={}", dice.between(0, 2))),
            dice.maybe(20, |dice| format!("min-run={}", dice.pick(&["10s", "1m"]))),
            dice.maybe(15, |dice| format!("quota.A100={}", dice.between(0, 2))),
            dice.maybe(10, |dice| format!("cpu-quota={}", dice.between(2, 16))),
            dice.maybe(10, |_| "train-on=rack:r0".into()),
            match departments {
                0 => String::new(),
                count => dice.maybe(70, |dice| format!("department=d{}", dice.between(0, count - 1))),
            },
        ];
        lines.push(format!("project p{project} quota={quota}{}", settings.concat()));
    }
    for workload in 0..dice.between(4, 22) {
        lines.push(submit(dice, workload, projects));
        match dice.between(0, 9) {
            0..=4 => lines.push(format!("wait {}", dice.pick(&["0s", "1s", "3s", "10s", "30s", "90s"]))),
            5 => {
                let (project, quota) = (dice.between(0, projects - 1), dice.between(0, 4));
                lines.push(format!("set project p{project} quota={quota}"));
            }
            6 => {
                let (verb, node) = (dice.pick(&["cordon", "uncordon"]), dice.between(0, nodes - 1));
                lines.push(format!("{verb} n{node}"));
            }
            _ => {}
        }
    }
    lines.push("wait 20m".into());
    lines
}

fn submit(dice: &mut Dice, workload: u64, projects: u64) -> String {
    let project = dice.between(0, projects - 1);
    let shape = dice.pick(&[
        "-g 1",
        "-g 2",
        "-g 4",
        "-g 0.5",
        "-g 0.3",
        "-g 0.5 --devices 2",
        "--gpu-memory 8Gi",
        "-g 1 --workers 2",
        "-g 1 --workers 3",
        "-g 1 --workers 4 --min-workers 1",
        "-g 2 --workers 2 --min-workers 1",
        "",
    ]);
    let flags = [
        dice.maybe(30, |dice| {
            dice.pick(&["--interactive", "--interactive", "--inference", "--non-preemptible"]).into()
        }),
        dice.maybe(20, |dice| format!("--priority {}", dice.pick(&["10", "60", "80"]))),
        dice.maybe(70, |dice| format!("--runs {}s", dice.between(5, 300))),
        dice.maybe(15, |dice| format!("--max-run {}s", dice.between(10, 200))),
        if shape.is_empty() { String::new() } else { dice.maybe(10, |_| "--model A100".into()) },
        dice.maybe(10, |_| "--topology required:rack".into()),
        dice.maybe(10, |_| "--spread".into()),
        dice.maybe(30, |dice| format!("--cpu {}", dice.between(1, 6))),
        dice.maybe(60, |dice| format!("--checkpoints {}", dice.pick(&["never", "20s"]))),
    ];
    format!("submit j{workload} -p p{project} {shape}{}", flags.concat())
}
