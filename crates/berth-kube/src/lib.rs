//! Berth on Kubernetes.
