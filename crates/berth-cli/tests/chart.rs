//! Chart and `berth operator manifest` give the server TLS and single sign-on in the same way. Without Helm it says what is
//! not tested, and passes.

#[path = "../../berth-kube/tests/helm/mod.rs"]
mod helm;

use helm::{Helm, Objects, by_name, difference, read, without_release};
use std::process::Command;

const COMMAND: &str = env!("CARGO_BIN_EXE_berth");

/// What is typed, and the settings of the chart that mean the same.
const CASES: [(&str, &[&str]); 4] = [
    ("", &[]),
    (
        "--tls-secret cert --public-name berth.example",
        &["server.tls={'secret': 'cert', 'publicName': 'berth.example'}"],
    ),
    (
        "--oidc-issuer https://id.example:443/ --oidc-client-id berth",
        &["server.oidc.issuer='https://id.example:443/'", "server.oidc.clientId='berth'"],
    ),
    (
        "--tls-secret cert --public-name berth.example --oidc-issuer https://id.example:8443/realms/lab \
         --oidc-client-id berth --oidc-client-secret client --oidc-user-claim sub --oidc-groups-claim teams \
         --oidc-name Lab --oidc-ca-secret authority",
        &[
            "server.tls={'secret': 'cert', 'publicName': 'berth.example'}",
            "server.oidc.issuer='https://id.example:8443/realms/lab'",
            "server.oidc.clientId='berth'",
            "server.oidc.clientSecret='client'",
            "server.oidc.userClaim='sub'",
            "server.oidc.groupsClaim='teams'",
            "server.oidc.name='Lab'",
            "server.oidc.caSecret='authority'",
        ],
    ),
];

fn printed(access: &str) -> Objects {
    let line =
        format!("operator manifest --cluster lab --namespace gpus --image registry.lab/berth:2 {access}");
    let output = Command::new(COMMAND).args(line.split_whitespace()).output().expect("it starts");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    let objects = read(&String::from_utf8(output.stdout).expect("is text"));
    // Helm makes the namespace itself, when it is asked to.
    by_name(objects.into_iter().filter(|object| object["kind"] != "Namespace").collect())
}

#[test]
fn the_chart_and_the_command_give_the_server_the_same() {
    let Some(helm) = Helm::find("whether the chart and `berth operator manifest` agree") else { return };
    for (access, settings) in CASES {
        let chosen = ["cluster='lab'", "image={'repository': 'registry.lab/berth', 'tag': '2'}"];
        let rendered = helm.render("gpus", &[&chosen, settings].concat());
        let rendered = rendered.unwrap_or_else(|refused| panic!("{settings:?}: {refused}"));
        assert_eq!(difference(&printed(access), &without_release(rendered)), [""; 0], "{access}");
    }
}
