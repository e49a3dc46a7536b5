//! moto's server, an object store like Amazon's.

use std::path::PathBuf;

use crate::skip;

/// The path of its program, which `scripts/lib.sh` (`ensure_moto`) installs beside what is built. Otherwise reports the test as
/// skipped.
pub fn moto() -> Option<PathBuf> {
    // TARGET_DIR/PROFILE/deps/NAME-HASH
    let test = std::env::current_exe().expect("the path of this test");
    let target = test.ancestors().nth(3).expect("a target directory");
    let program = target.join("tools/moto/bin/moto_server");
    if !program.is_file() {
        skip(
            "moto's server is not installed (make test installs it by pip, which needs python3-venv and a network)",
        );
        return None;
    }
    Some(program)
}
