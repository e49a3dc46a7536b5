//! etcd, which lists the nodes of clusters.

use std::path::PathBuf;

use crate::skip;

/// The path of its program: an installed one, or that which `scripts/lib.sh` (`ensure_etcd`) fetches beside what is built. Otherwise
/// reports the test as skipped.
pub fn etcd() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path).map(|folder| folder.join("etcd"));
    // TARGET_DIR/PROFILE/deps/NAME-HASH
    let test = std::env::current_exe().expect("the path of this test");
    let target = test.ancestors().nth(3).expect("a target directory");
    let fetched = target.join("tools/etcd/usr/bin/etcd");
    let program = installed.chain([fetched]).find(|program| program.is_file());
    if program.is_none() {
        skip("etcd is not there (make test fetches Debian's; or apt-get install etcd-server)");
    }
    program
}
