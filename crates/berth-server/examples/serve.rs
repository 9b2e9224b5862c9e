//! A server for trying things by hand.
use std::process::ExitCode;
fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    match args.get(1).and_then(|a| a.to_str()) {
        Some("shim") => return berth_agent::shim_main(args.into_iter().skip(2)),
        Some("quickstart") => return berth_agent::quickstart_main(args.into_iter().skip(2)),
        _ => {}
    }
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let rt = tokio::runtime::Runtime::new().unwrap();
    rt.block_on(async {
        let project = |name: &str, quota: &str| berth_api::ProjectSettings { name: Some(name.into()), quota: Some(quota.parse().unwrap()), ..Default::default() };
        let config = berth_server::Config {
            folder: args[1].clone().into(), listen: "127.0.0.1:7399".parse().unwrap(),
            nodes: berth_server::declared_nodes("2xdgx1").unwrap(),
            projects: vec![project("team-a","4"), project("team-b","2"), project("team-c","2"), project("team-d","8")],
            images: Default::default(), shim: None, quickstart: None, policy: Default::default(), store: Default::default(), user: "root".into(),
        };
        let mut running = berth_server::run(config).await.unwrap();
        eprintln!("listening on {} {:?}", running.address, running.notes);
        tokio::select! { how = running.stop_asked() => running.stop(how).await, _ = tokio::signal::ctrl_c() => running.stop(berth_server::Shutdown::EndWorkloads).await }
    });
    ExitCode::SUCCESS
}
