//! What the report types.

/// The commands of sections 4.8 to 4.10 as the report prints them; lines that the page breaks or runs together are split as
/// is evident.
pub(crate) const SECTION_4_8: [&str; 13] = [
    "runai submit a-1-1-jupyter -i jupyter/base-notebook -g 1 --interactive --service-type=ingress --port 8888 \
     --args=--NotebookApp.base_url=team-a-test-ingress --command=start-notebook.sh -p team-a",
    "runai submit a-1-g -i gcr.io/run-ai-demo/quickstart -g 1 -p team-a",
    "runai submit a-2-gg -i gcr.io/run-ai-demo/quickstart -g 2 -p team-a",
    "runai submit b-1-g06 -i gcr.io/run-ai-demo/quickstart -g 0.6 --interactive -p team-b",
    "runai submit b-2-g04 -i gcr.io/run-ai-demo/quickstart -g 0.4 --interactive -p team-b",
    "runai submit b-3-g -i gcr.io/run-ai-demo/quickstart -g 1 -p team-b",
    "runai submit b-4-gg -i gcr.io/run-ai-demo/quickstart -g 2 -p team-b",
    "runai submit c-1-g05 -i gcr.io/run-ai-demo/quickstart -g 0.5 --interactive -p team-c",
    "runai submit c-2-g03 -i gcr.io/run-ai-demo/quickstart -g 0.3 --interactive -p team-c",
    "runai submit c-3-g02 -i gcr.io/run-ai-demo/quickstart -g 0.2 --interactive -p team-c",
    "runai submit c-4-gg -i gcr.io/run-ai-demo/quickstart -g 2 -p team-c",
    "runai submit c-5-g -i gcr.io/run-ai-demo/quickstart -g 1 -p team-c",
    "runai submit d-1-gggg -i gcr.io/run-ai-demo/quickstart -g 4 -p team-d",
];
pub(crate) const SECTION_4_9: [&str; 2] = [
    "runai submit d-2-gg -i gcr.io/run-ai-demo/quickstart -g 2 -p team-d",
    "runai submit d-3-gg -i gcr.io/run-ai-demo/quickstart -g 2 -p team-d",
];
pub(crate) const SECTION_4_10: [&str; 4] = [
    "runai submit a-3-gg -i gcr.io/run-ai-demo/quickstart -g 2 -p team-a",
    "runai submit a-4-gg -i gcr.io/run-ai-demo/quickstart -g 2 -p team-a",
    "runai submit b-5-gg -i gcr.io/run-ai-demo/quickstart -g 2 -p team-b",
    "runai submit c-6-gg -i gcr.io/run-ai-demo/quickstart -g 2 -p team-c",
];
