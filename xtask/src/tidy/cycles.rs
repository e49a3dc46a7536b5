//! Cycles between modules of a crate.
//!
//! An edge a -> b is a path in `a` (or below it) that leads to an item in `b` (or below it), through re-exports too.
//! Only sibling modules are compared. References between a parent and its children are no edges, so `mod.rs` may call a
//! child that uses its types.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Item, ItemMod, ItemUse, UseTree};

use super::Finding;
use crate::tree::{Tree, folder_of_children};

/// Segments of a path, such as `["http", "range"]`; empty for the crate root.
type ModulePath = Vec<String>;

/// Re-exports may lead to re-exports; a longer chain is a loop.
const ALIASES_FOLLOWED_MAX: usize = 8;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for room in tree.rooms() {
        for root in ["lib.rs", "main.rs"] {
            let root = format!("{room}/src/{root}");
            if tree.is_file(&root) {
                findings.extend(cycles(&Crate::read(tree, &root)));
            }
        }
    }
    findings
}

/// A path somewhere in a module.
struct Mention {
    from: ModulePath,
    segments: Vec<String>,
    path: String,
    line: usize,
}

#[derive(Default)]
struct Module {
    children: BTreeSet<String>,
    /// Names that `use` introduces at the module's level: name -> path as written.
    aliases: BTreeMap<String, Vec<String>>,
}

#[derive(Default)]
struct Crate {
    modules: BTreeMap<ModulePath, Module>,
    mentions: Vec<Mention>,
}

impl Crate {
    fn read(tree: &Tree, root: &str) -> Crate {
        let mut found = Crate::default();
        let mut files = VecDeque::from([(root.to_string(), ModulePath::new())]);
        while let Some((path, module)) = files.pop_front() {
            let Some(source) = tree.sources().iter().find(|source| source.path == path) else {
                continue;
            };
            let mut reader = Reader {
                found: &mut found,
                path: &path,
                module: module.clone(),
                files: Vec::new(),
            };
            reader.module_items(&source.code.items);
            for inside in std::mem::take(&mut reader.files) {
                let folder = folder_of_children(&path);
                let below = inside[module.len()..].join("/");
                let file = format!("{folder}/{below}.rs");
                let file = if tree.is_file(&file) {
                    file
                } else {
                    format!("{folder}/{below}/mod.rs")
                };
                files.push_back((file, inside));
            }
        }
        found
    }

    /// The module that a path written in `from` leads to; `None` if it leaves the crate.
    fn resolve(
        &self,
        from: &ModulePath,
        segments: &[String],
        aliases_left: usize,
    ) -> Option<ModulePath> {
        let (first, rest) = segments.split_first()?;
        let start = match first.as_str() {
            "crate" => ModulePath::new(),
            "self" => from.clone(),
            "super" => from[..from.len().checked_sub(1)?].to_vec(),
            _ => {
                return self
                    .descend(from, segments, aliases_left)
                    .filter(|to| to != from);
            }
        };
        self.descend(&start, rest, aliases_left)
    }

    fn descend(
        &self,
        start: &ModulePath,
        segments: &[String],
        aliases_left: usize,
    ) -> Option<ModulePath> {
        let Some((name, rest)) = segments.split_first() else {
            return Some(start.clone());
        };
        let module = self.modules.get(start)?;
        if name == "super" {
            return self.descend(
                &start[..start.len().checked_sub(1)?].to_vec(),
                rest,
                aliases_left,
            );
        }
        if module.children.contains(name) {
            let mut child = start.clone();
            child.push(name.clone());
            return self.descend(&child, rest, aliases_left);
        }
        match module.aliases.get(name) {
            Some(alias) if aliases_left > 0 && alias.first() != Some(name) => {
                let whole: Vec<String> = alias.iter().chain(rest).cloned().collect();
                // An alias that leaves the crate counts as an item of this module.
                self.resolve(start, &whole, aliases_left - 1)
                    .or_else(|| Some(start.clone()))
            }
            _ => Some(start.clone()),
        }
    }
}

/// Walks one file, module by module.
struct Reader<'a> {
    found: &'a mut Crate,
    path: &'a str,
    module: ModulePath,
    /// Modules with files of their own.
    files: Vec<ModulePath>,
}

impl Reader<'_> {
    fn module_items(&mut self, items: &[Item]) {
        self.found.modules.entry(self.module.clone()).or_default();
        for item in items {
            if let Item::Use(item) = item {
                for (name, segments) in leaves(&item.tree) {
                    let module = self.found.modules.entry(self.module.clone()).or_default();
                    module.aliases.insert(name, segments);
                }
            }
        }
        for item in items {
            self.visit_item(item);
        }
    }

    fn mention(&mut self, segments: Vec<String>, line: usize) {
        let mention = Mention {
            from: self.module.clone(),
            segments,
            path: self.path.to_string(),
            line,
        };
        self.found.mentions.push(mention);
    }

    /// Inside a macro there are only tokens: `crate::a::b` is still a path.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let (mut line, mut colons) = (0, 0);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.path_in_macro(&mut path, line);
                        line = ident.span().start().line;
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.path_in_macro(&mut path, line);
                    self.tokens(group.stream());
                    colons = 0;
                }
                _ => {
                    self.path_in_macro(&mut path, line);
                    colons = 0;
                }
            }
        }
        self.path_in_macro(&mut path, line);
    }

    fn path_in_macro(&mut self, path: &mut Vec<String>, line: usize) {
        if path.len() > 1 && matches!(path[0].as_str(), "crate" | "super" | "self") {
            self.mention(std::mem::take(path), line);
        }
        path.clear();
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let name = item.ident.to_string();
        let module = self.found.modules.entry(self.module.clone()).or_default();
        module.children.insert(name.clone());
        self.module.push(name);
        match &item.content {
            Some((_, items)) => self.module_items(items),
            None => self.files.push(self.module.clone()),
        }
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let line = item.use_token.span.start().line;
        for (_, segments) in leaves(&item.tree) {
            self.mention(segments, line);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        if segments.len() > 1 {
            let line = path.segments[0].ident.span().start().line;
            self.mention(segments, line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}

/// The names that a `use` introduces, each with its whole path. A glob introduces none, but counts as a mention of its
/// module.
fn leaves(tree: &UseTree) -> Vec<(String, Vec<String>)> {
    fn walk(tree: &UseTree, prefix: &[String], found: &mut Vec<(String, Vec<String>)>) {
        let with = |name: String| prefix.iter().cloned().chain([name]).collect::<Vec<_>>();
        match tree {
            UseTree::Path(path) => walk(&path.tree, &with(path.ident.to_string()), found),
            UseTree::Name(name) if name.ident == "self" => {
                found.push((prefix.last().cloned().unwrap_or_default(), prefix.to_vec()));
            }
            UseTree::Name(name) => {
                found.push((name.ident.to_string(), with(name.ident.to_string())))
            }
            UseTree::Rename(rename) => {
                found.push((rename.rename.to_string(), with(rename.ident.to_string())))
            }
            UseTree::Glob(_) => found.push(("*".to_string(), prefix.to_vec())),
            UseTree::Group(group) => group
                .items
                .iter()
                .for_each(|tree| walk(tree, prefix, found)),
        }
    }
    let mut found = Vec::new();
    walk(tree, &[], &mut found);
    found
}

/// Edges between sibling modules: (parent, from, to) -> the first mention.
type Edges<'a> = BTreeMap<ModulePath, BTreeMap<&'a str, BTreeMap<String, &'a Mention>>>;

fn cycles(found: &Crate) -> Vec<Finding> {
    let mut edges: Edges<'_> = BTreeMap::new();
    for mention in &found.mentions {
        let Some(to) = found.resolve(&mention.from, &mention.segments, ALIASES_FOLLOWED_MAX) else {
            continue;
        };
        let common = mention
            .from
            .iter()
            .zip(&to)
            .take_while(|(a, b)| a == b)
            .count();
        if let (Some(from), Some(to_name)) = (mention.from.get(common), to.get(common)) {
            let siblings = edges.entry(to[..common].to_vec()).or_default();
            siblings
                .entry(from)
                .or_default()
                .entry(to_name.clone())
                .or_insert(mention);
        }
    }
    let mut findings = Vec::new();
    for graph in edges.values() {
        let mut told: BTreeSet<&str> = BTreeSet::new();
        for start in graph.keys() {
            if told.contains(start) {
                continue;
            }
            if let Some(cycle) = shortest_cycle(graph, start) {
                findings.push(finding(graph, &cycle));
                told.extend(cycle);
            }
        }
    }
    findings
}

/// The shortest cycle through `start`.
fn shortest_cycle<'a>(
    graph: &'a BTreeMap<&'a str, BTreeMap<String, &'a Mention>>,
    start: &'a str,
) -> Option<Vec<&'a str>> {
    let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut open = VecDeque::from([start]);
    while let Some(module) = open.pop_front() {
        for next in graph.get(module).into_iter().flat_map(|to| to.keys()) {
            if next == start {
                let mut cycle = vec![module];
                let mut at = module;
                while at != start {
                    at = came_from[at];
                    cycle.push(at);
                }
                cycle.reverse();
                return Some(cycle);
            }
            if !came_from.contains_key(next.as_str()) {
                came_from.insert(next, module);
                open.push_back(next);
            }
        }
    }
    None
}

fn finding(graph: &BTreeMap<&str, BTreeMap<String, &Mention>>, cycle: &[&str]) -> Finding {
    let next = |index: usize| cycle[(index + 1) % cycle.len()];
    let edge = |index: usize| graph[cycle[index]][next(index)];
    let others: Vec<String> = (1..cycle.len())
        .map(|index| {
            format!(
                "{} needs {} at {}:{}",
                cycle[index],
                next(index),
                edge(index).path,
                edge(index).line
            )
        })
        .collect();
    let what = format!(
        "modules in a circle: {} -> {} ({})",
        cycle.join(" -> "),
        cycle[0],
        others.join(", ")
    );
    Finding::new(
        &edge(0).path,
        edge(0).line,
        what,
        "move what both need into a module below both",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy;

    fn checked(files: &[(&str, &str)]) -> String {
        let manifest = [("core/Cargo.toml", "")];
        tidy::checked(check, &[&manifest, files].concat())
    }

    #[test]
    fn two_modules_that_need_each_other_are_named_with_both_places() {
        assert_eq!(
            checked(&[
                ("core/src/lib.rs", "mod a;\nmod b;\nmod c;\n"),
                ("core/src/a.rs", "\nuse crate::b::B;\n"),
                ("core/src/b.rs", "fn f() {\n    let _ = super::a::g();\n}\n"),
                ("core/src/c.rs", "use crate::{a, b::B};\n"),
            ]),
            "core/src/a.rs:2: modules in a circle: a -> b -> a (b needs a at core/src/b.rs:2); \
             move what both need into a module below both\n"
        );
    }

    #[test]
    fn a_longer_way_round_is_found_through_folders_and_re_exports() {
        assert_eq!(
            checked(&[
                (
                    "core/src/lib.rs",
                    "mod a;\nmod b;\nmod c;\npub use c::deep::Deep;\n"
                ),
                ("core/src/a.rs", "use crate::b;\n"),
                ("core/src/b.rs", "use crate::Deep;\n"),
                ("core/src/c.rs", "pub mod deep;\n"),
                (
                    "core/src/c/deep.rs",
                    "fn f() { println!(\"{}\", crate::a::X) }\n"
                ),
            ]),
            "core/src/a.rs:1: modules in a circle: a -> b -> c -> a (b needs c at core/src/b.rs:1, \
             c needs a at core/src/c/deep.rs:1); move what both need into a module below both\n"
        );
    }

    #[test]
    fn children_of_one_parent_are_checked_too() {
        assert_eq!(
            checked(&[
                ("core/src/lib.rs", "mod a;\n"),
                ("core/src/a.rs", "mod x;\nmod y;\n"),
                ("core/src/a/x.rs", "use super::y::Y;\n"),
                ("core/src/a/y.rs", "use crate::a::x::X;\n"),
            ]),
            "core/src/a/x.rs:1: modules in a circle: x -> y -> x (y needs x at core/src/a/y.rs:1); \
             move what both need into a module below both\n"
        );
    }

    #[test]
    fn tests_may_look_wherever_they_like_and_a_parent_and_its_children_are_one_room() {
        let family = [
            ("core/src/lib.rs", "mod a;\nuse a::f;\npub struct Root;\n"),
            (
                "core/src/a/mod.rs",
                "mod x;\nmod y;\nuse x::X;\npub fn f() { y::g() }\n",
            ),
            ("core/src/a/x.rs", "use super::f;\nuse crate::Root;\n"),
            ("core/src/a/y.rs", "use super::x::X;\n"),
        ];
        assert_eq!(checked(&family), "");
        let a = "use crate::b::B;\n";
        let b = "#[cfg(test)]\nmod tests { use crate::a::A; }\n";
        let lib = ("core/src/lib.rs", "mod a;\nmod b;\n");
        assert_eq!(
            checked(&[lib, ("core/src/a.rs", a), ("core/src/b.rs", b)]),
            ""
        );
    }
}
