//! A real Kubernetes control plane on loopback, in its own folder, for as long as a [`Cluster`] lives.
//!
//! It owns the processes (etcd, the API server, the controllers, the stock scheduler when asked for, kwok), their
//! certificates, the simulated nodes and, when asked for, a real one. It knows nothing of Berth: what is tested stands outside of it.
//!
//! ```text
//!   Cluster::start(Options) ── etcd ◄─(socket)─ kube-apiserver ◄─(TLS, one port)─┬─ kube-controller-manager
//!            │                                                                  ├─ kube-scheduler, if asked for
//!            └─ add_nodes(NodeSpec): Nodes, ResourceSlices, DeviceClass          ├─ kwok: plays the kubelets
//!                                                                               └─ the real node, in namespaces of its
//!                                                                                  own: kubelet ─ containerd ─ runc
//! ```
//!
//! Every process is a child of one thread that lives as long as the program, and the kernel ends it when that thread is
//! gone: a test that is killed leaves nothing behind either.

mod api;
mod binaries;
mod certificates;
mod cgroups;
mod cluster;
mod components;
mod image;
mod nodes;
mod ports;
mod processes;
mod real;
mod rights;

pub use binaries::{KUBERNETES_VERSION, helm, kubectl};
pub use cluster::{Cluster, Options};
pub use image::Image;
pub use nodes::{DRIVER, NodeSpec, SHARE_WHOLE};
pub use real::REAL_NODE;
pub use rights::{Asked, Right, rights_of};
