//! ARCHITECTURE.md is the map: it names every top-level folder, every crate and every folder of modules.

use super::Finding;
use crate::tree::Tree;

const MAP: &str = "ARCHITECTURE.md";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(map) = tree.text(MAP) else {
        return Vec::new();
    };
    tree.folders()
        .filter(|folder| is_place(tree, folder) && !names(map, folder))
        .map(|folder| {
            Finding::new(
                MAP,
                1,
                format!("the map lacks `{folder}/`"),
                "add a line on what is in it and why",
            )
        })
        .collect()
}

/// Whether it is a top-level folder, a crate, or a folder of modules: core/src/sndbuf, server/src/front/http,
/// lab/wan/src/check.
fn is_place(tree: &Tree, folder: &str) -> bool {
    if !folder.contains('/') {
        return folder != ".cargo";
    }
    let of_modules = |room: &str| {
        let below = folder.strip_prefix(room);
        below.is_some_and(|below| below.starts_with("/src/"))
    };
    tree.rooms().any(|room| room == folder || of_modules(room))
}

/// Whether the map names the folder, by its whole path or by its own name where a tree is drawn.
fn names(map: &str, folder: &str) -> bool {
    let own = folder.rsplit('/').next().unwrap_or(folder);
    let begins =
        |at: usize| !map[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.".contains(c));
    map.match_indices(&format!("{own}/"))
        .any(|(at, _)| begins(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy;

    #[test]
    fn a_folder_that_the_map_lacks_is_named() {
        let files = [
            (
                MAP,
                "# Map\n```\ncore/   policy\nserver/ shells: front/http (bytes)\nsrc/\n```\n",
            ),
            ("core/Cargo.toml", ""),
            ("core/src/disk.rs", ""),
            ("core/src/sndbuf/atbt.rs", ""),
            ("core/wan/Cargo.toml", ""),
            ("core/wan/src/check/a.rs", ""),
            ("server/Cargo.toml", ""),
            ("server/src/front/http/conn.rs", ""),
            ("bpf/a.c", ""),
        ];
        assert_eq!(
            tidy::checked(check, &files),
            "ARCHITECTURE.md:1: the map lacks `bpf/`; add a line on what is in it and why\n\
             ARCHITECTURE.md:1: the map lacks `core/src/sndbuf/`; add a line on what is in it and why\n\
             ARCHITECTURE.md:1: the map lacks `core/wan/`; add a line on what is in it and why\n\
             ARCHITECTURE.md:1: the map lacks `core/wan/src/check/`; add a line on what is in it and why\n\
             ARCHITECTURE.md:1: the map lacks `server/src/front/http/`; add a line on what is in it and why\n"
        );
    }

    #[test]
    fn without_a_map_nothing_is_lacking() {
        assert_eq!(tidy::checked(check, &[("core/src/disk.rs", "")]), "");
    }
}
