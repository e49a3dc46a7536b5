//! Pure parsers and planners: bytes from outside to values, values to bytes.
//!
//! Nothing here does I/O, reads a clock or starts a thread; the same input gives the same output. No input from
//! outside causes a panic: every target in `fuzz/` drives this crate. Start with [`http::parse`] (bytes to a
//! request), then [`http::plan`] (a request to the bytes of its answer). The bounds are in [`limits`].
#![forbid(unsafe_code)]

pub mod access_log;
pub mod base64;
pub mod civil;
pub mod cluster;
pub mod content_type;
pub mod files;
pub mod fuse;
pub mod gateway;
pub mod hide;
pub mod http;
pub mod iscsi;
pub mod limits;
pub mod listing;
pub mod nfs3;
pub mod rpc;
pub mod s3;
pub mod tcp_info;
mod text;
pub mod trace;
