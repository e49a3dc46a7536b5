//! Every option of the server, each defined once.
//!
//! A field of [`ServeOptions`] is the one definition of an option: its doc comment gives `--help` (first line), the man
//! page and docs/configuration.md (all of it); its long name gives the key of the configuration file and the variable
//! `ACKPACE_*`; its type and parser give range and errors. Reading values has no effects: nothing is opened.

mod cluster;
mod compare;
mod duration;
mod iscsi;
mod kinds;
mod listen;
mod names;
mod nfs;
mod serve;
mod size;
mod targets;
mod value;

pub use cluster::{
    ClusterAt, ClusterOptions, EtcdAt, EtcdUrl, HandOff, KEY_BYTES, Peer, shown_key,
};
pub use compare::Compare;
pub use duration::display as display_duration;
pub use iscsi::{IscsiOptions, UnitAt};
pub use kinds::{
    CongestionControl, FollowSymlinks, LogFormat, LogLevel, SendMemory, Sibling, UnixMode, Workers,
};
pub use listen::Listen;
pub use names::{TypeOverride, has_port, is_bucket, is_url};
pub use nfs::{ExportSpec, Network, NfsOptions, Squash};
pub use serve::ServeOptions;
pub use size::Size;
pub use targets::{AdminAt, LogTarget, MetricsAt};
pub use value::{ValueError, acts_on_a_terminal, nearest, shown, shown_path};
