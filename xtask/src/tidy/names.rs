//! A type's name stands once in a crate: whoever searches for it finds one thing. Names that stand twice are listed, but do
//! not fail, since some things are best told apart by their module.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};

use super::Finding;
use crate::tree::Tree;

const CRATES: [&str; 3] = ["core", "server", "wire"];
/// Each machine has these, and its module's name before them (`disk::In`).
const OF_MACHINES: [&str; 3] = ["In", "Out", "Settings"];

/// Names of structs, enums and traits that another file of the crate has, too.
pub fn list(tree: &Tree) -> Vec<Finding> {
    let of_crate = |name: &&str| {
        let mut places: BTreeMap<String, Vec<(&str, usize)>> = BTreeMap::new();
        for source in tree.code(name) {
            let mut types = Types(Vec::new());
            types.visit_file(&source.code);
            for (name, line) in types.0 {
                places.entry(name).or_default().push((&source.path, line));
            }
        }
        let twice = |(name, places): (String, Vec<(&str, usize)>)| {
            let ((path, line), (first, _)) = (*places.get(1)?, *places.first()?);
            let what = format!("note: `{name}` is the name of a type in {first}, too");
            let cure = "could one say more of what it is?";
            Some(Finding::new(path, line, what, cure))
        };
        let named = places
            .into_iter()
            .filter(|(name, _)| !OF_MACHINES.contains(&name.as_str()));
        named.filter_map(twice).collect::<Vec<_>>()
    };
    CRATES.iter().flat_map(of_crate).collect()
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
    fn a_name_that_stands_twice_in_a_crate_is_listed() {
        let tree = Tree::of(&[
            ("core/src/a.rs", "struct Load;\nenum In {}\n"),
            (
                "core/src/b.rs",
                "enum In {}\ntrait Load {}\n#[cfg(test)]\nmod tests { struct Seen; }\n",
            ),
            ("core/src/c.rs", "struct Seen;\n"),
            ("server/src/a.rs", "struct Load;\n"),
        ]);
        assert_eq!(
            messages(&list(&tree)),
            "core/src/b.rs:2: note: `Load` is the name of a type in core/src/a.rs, too; could one say more of what it is?\n"
        );
    }
}
