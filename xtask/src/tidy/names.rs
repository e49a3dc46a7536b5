//! A type's name stands once in a crate: whoever searches for it finds one thing.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};

use super::Finding;
use crate::tree::Tree;

/// Each machine has these, and its module's name before them (`disk::In`).
const OF_MACHINES: [&str; 3] = ["In", "Out", "Settings"];
/// Each world of the simulator has these, and its module's name before them (`delivery::World`).
const OF_WORLDS: [&str; 3] = ["World", "Run", "Outcome"];
const WORLDS: &str = "sim/src/worlds/";

/// Names of structs, enums and traits that another file of the crate has, too.
pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.rooms().flat_map(|room| of_crate(tree, room)).collect()
}

fn of_crate(tree: &Tree, room: &str) -> Vec<Finding> {
    let mut places: BTreeMap<String, Vec<(&str, usize)>> = BTreeMap::new();
    for source in tree.code(room) {
        let mut types = Types(Vec::new());
        types.visit_file(&source.code);
        let path = source.path.as_str();
        let own = |name: &str| {
            OF_MACHINES.contains(&name) || path.starts_with(WORLDS) && OF_WORLDS.contains(&name)
        };
        for (name, line) in types.0.into_iter().filter(|(name, _)| !own(name)) {
            places.entry(name).or_default().push((path, line));
        }
    }
    let twice = |(name, places): (String, Vec<(&str, usize)>)| {
        let ((path, line), (first, _)) = (*places.get(1)?, *places.first()?);
        let what = format!("`{name}` is the name of a type in {first}, too");
        let cure = "name one by its role, or make them one type";
        Some(Finding::new(path, line, what, cure))
    };
    places.into_iter().filter_map(twice).collect()
}

struct Types(Vec<(String, usize)>);

impl Types {
    fn one(&mut self, name: &syn::Ident) {
        self.0.push((name.to_string(), name.span().start().line));
    }
}

impl<'ast> Visit<'ast> for Types {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.one(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.one(&item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.one(&item.ident);
        visit::visit_item_trait(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::messages;

    #[test]
    fn a_name_that_stands_twice_in_a_crate_is_found() {
        let tree = Tree::of(&[
            ("core/Cargo.toml", ""),
            ("server/Cargo.toml", ""),
            ("core/src/a.rs", "struct Load;\nenum In {}\n"),
            (
                "core/src/b.rs",
                "enum In {}\ntrait Load {}\n#[cfg(test)]\nmod tests { struct Seen; }\n",
            ),
            ("core/src/c.rs", "struct Seen;\n"),
            ("server/src/a.rs", "struct Load;\n"),
        ]);
        assert_eq!(
            messages(&check(&tree)),
            "core/src/b.rs:2: `Load` is the name of a type in core/src/a.rs, too; name one by its role, or make them one type\n"
        );
    }

    #[test]
    fn worlds_share_their_names_with_each_other_but_with_no_model() {
        let tree = Tree::of(&[
            ("sim/Cargo.toml", ""),
            ("sim/src/models/disk.rs", "struct Run;\n"),
            ("sim/src/models/link.rs", "struct Run;\n"),
            ("sim/src/worlds/credit.rs", "struct World;\nstruct Run;\n"),
            ("sim/src/worlds/sending.rs", "struct World;\nstruct Run;\n"),
        ]);
        assert_eq!(
            messages(&check(&tree)),
            "sim/src/models/link.rs:1: `Run` is the name of a type in sim/src/models/disk.rs, too; \
             name one by its role, or make them one type\n"
        );
    }

    #[test]
    fn the_helpers_of_end_to_end_tests_are_code() {
        let tree = Tree::of(&[
            ("tests/Cargo.toml", ""),
            ("tests/src/a.rs", "struct Seen;\n"),
            ("tests/src/b.rs", "struct Seen;\n"),
            ("tests/tests/c.rs", "struct Seen;\n"),
        ]);
        assert_eq!(check(&tree).len(), 1);
    }
}
