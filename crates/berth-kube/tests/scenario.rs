//! The scenario of the report, played in the simulator and on a real API server: after each step both stand the same.

mod mirror;

use berth_sim::scenario::{Scenario, Statement};
use berth_testbed::NodeSpec;
use mirror::{Mirror, Operator, block_on, cluster, connect, install, standing};

#[test]
fn the_report_stands_the_same_in_the_simulator_and_on_kubernetes() {
    let options = berth_testbed::Options { nodes: vec![NodeSpec::dgx1(2).with_dra()], ..Default::default() };
    let Some(cluster) = cluster("the report on Kubernetes", options) else { return };
    block_on(async {
        let client = connect(cluster.kubeconfig()).await;
        install(&client).await;
        let operator = Operator::start(&client);
        let text = include_str!("../../../scenarios/tr4858.berth");
        let scenario = Scenario::parse("tr4858.berth", text).expect("the report's scenario is right");
        play(&client, &scenario).await;
        operator.stop().await;
    });
}

async fn play(client: &kube::Client, scenario: &Scenario) {
    let options = berth_sim::Options { policy: scenario.policy.clone(), ..Default::default() };
    let mut both = Mirror::new(client, berth_sim::World::new(options));
    let (mut since, mut met) = (0, 0);
    for line in &scenario.lines {
        let what = format!("line {}", line.number);
        match &line.statement {
            Statement::Nodes(nodes) => {
                for node in nodes {
                    both.sim.apply(berth_types::Change::NodeSet(node.clone())).expect("a node");
                }
            }
            Statement::Project(project) => both.project(project).await,
            Statement::Submit(id, spec, work) => {
                both.submit(*id, spec, *work).await;
                both.agree(&what).await;
            }
            Statement::Delete(ids) => {
                both.delete(ids).await;
                both.agree(&what).await;
            }
            Statement::Wait(_) => {
                let state = both.agree(&what).await;
                eprintln!("{what}: {} workloads stand the same", standing(&state).expect("settled").len());
            }
            Statement::Title(title) => {
                eprintln!("{title}");
                since = both.sim.log().len();
            }
            Statement::Expect(expectation, text) => {
                expectation
                    .check(&both.sim, since)
                    .unwrap_or_else(|found| panic!("{what}: {text}; found {found}"));
                met += 1;
            }
            Statement::Explain(_) => {}
            other => panic!("{what}: {other:?} is not played here"),
        }
    }
    eprintln!("{met} expectations hold");
}
