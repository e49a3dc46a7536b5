//! Validates objects and parts.

use super::{Verdict, ZIPF_COUNT_MAX, check_above_zero, check_part_of_one};
use crate::workload::{Choice, Objects, Part, PartChoice};

/// Checks the objects of a class.
pub fn check_objects(object: &Objects, clients: u32) -> Verdict {
    check_path(object)?;
    check_count(object)?;
    if object.digits > 9 {
        return Err(format!(
            "object.digits: {}; allowed are 0 to 9",
            object.digits
        ));
    }
    check_zipf(object)?;
    check_locality(object)?;
    check_first(object)?;
    if object.choice == Choice::Locality && object_count(object) <= clients {
        return Err(format!(
            "object.count: {}; {clients} clients need {} objects: a common one, and one for each",
            object_count(object),
            u64::from(clients) + 1
        ));
    }
    match (object.file.is_some(), object.choice == Choice::Trace) {
        (true, false) => Err("object.file: only with choice = \"trace\"".into()),
        (false, true) => Err("object.file: needed with choice = \"trace\"".into()),
        _ => Ok(()),
    }
}

fn check_path(object: &Objects) -> Verdict {
    let numbered = object.choice != Choice::One;
    let plain = |c: char| c.is_ascii_graphic() && c != '%';
    let once = object.path.matches("{n}").count() == usize::from(numbered);
    if object.path.trim_matches('/').is_empty() || !object.path.chars().all(plain) || !once {
        let number = if numbered {
            "with \"{n}\" once"
        } else {
            "without \"{n}\""
        };
        return Err(format!(
            "object.path: \"{}\"; allowed is a path of visible ASCII characters but %, {number}",
            object.path
        ));
    }
    Ok(())
}

/// Sets need a number of objects; other choices must not have one.
fn check_count(object: &Objects) -> Verdict {
    let sets = [
        Choice::Uniform,
        Choice::Zipf,
        Choice::Locality,
        Choice::Dealt,
    ];
    match (object.count, sets.contains(&object.choice)) {
        (Some(0) | None, true) => Err("object.count: needed, 1 and more".into()),
        (Some(_), false) => Err("object.count: not with this object.choice".into()),
        _ => Ok(()),
    }
}

fn object_count(object: &Objects) -> u32 {
    object.count.unwrap_or(0)
}

/// Checks the exponent of Zipf's law.
fn check_zipf(object: &Objects) -> Verdict {
    let count = object_count(object);
    match (object.s, object.choice) {
        (Some(s), Choice::Zipf) if !(0.0..=10.0).contains(&s) => {
            return Err(format!("object.s: {s}; allowed are 0 to 10"));
        }
        (None, Choice::Zipf) => return Err("object.s: needed with choice = \"zipf\"".into()),
        (_, Choice::Zipf) if count > ZIPF_COUNT_MAX => {
            return Err(format!(
                "object.count: {count}; Zipf takes up to {ZIPF_COUNT_MAX}"
            ));
        }
        (Some(_), choice) if choice != Choice::Zipf => {
            return Err("object.s: only with choice = \"zipf\"".into());
        }
        _ => {}
    }
    Ok(())
}

/// Checks the share of clients with a common object.
fn check_locality(object: &Objects) -> Verdict {
    match (object.p, object.choice) {
        (Some(p), Choice::Locality) => check_part_of_one("object.p", p)?,
        (None, Choice::Locality) => {
            return Err("object.p: needed with choice = \"locality\"".into());
        }
        (Some(_), _) => return Err("object.p: only with choice = \"locality\"".into()),
        (None, _) => {}
    }
    Ok(())
}

/// Checks the number of the first dealt object.
fn check_first(object: &Objects) -> Verdict {
    let count = object_count(object);
    if object.first > 0 && object.choice != Choice::Dealt {
        return Err("object.first: only with choice = \"dealt\"".into());
    }
    if object.first > 0 && object.first >= count {
        return Err(format!(
            "object.first: {}; the last object is {}",
            object.first,
            count - 1
        ));
    }
    Ok(())
}

/// Checks the part of an object.
pub fn check_part(part: Option<&Part>, object: &Objects, clients: u32) -> Verdict {
    let part = part.copied().unwrap_or_default();
    let needed = |what: &str| format!("part.{what}: needed with this part.choice, above 0");
    if part.align_bytes == Some(0) {
        return Err("part.align_bytes: 0; allowed are 1 and more".into());
    }
    if part.choice != PartChoice::Ranges && part.len_bytes.is_some() {
        return Err("part.len_bytes: only with choice = \"ranges\"".into());
    }
    if part.choice != PartChoice::Seeks && part.every_s.is_some() {
        return Err("part.every_s: only with choice = \"seeks\"".into());
    }
    let apart = part.apart_bytes.or(part.apart_max_bytes);
    if part.choice != PartChoice::Places && apart.is_some() {
        return Err("part.apart_bytes, .apart_max_bytes: only with choice = \"places\"".into());
    }
    if part.choice == PartChoice::Whole {
        return Ok(());
    }
    let file_bytes = match (object.choice, object.len_bytes) {
        (Choice::Trace, _) => return Err("part: a trace asks for whole objects only".into()),
        (_, Some(bytes)) if bytes > 0 => bytes,
        _ => return Err("object.len_bytes: needed with this part.choice, above 0".into()),
    };
    match part.choice {
        PartChoice::Ranges => match part.len_bytes {
            None | Some(0) => Err(needed("len_bytes")),
            Some(bytes) if bytes > file_bytes => Err(format!(
                "part.len_bytes: {bytes}, above object.len_bytes of {file_bytes}"
            )),
            Some(_) => Ok(()),
        },
        PartChoice::Places => check_places(part, object, file_bytes, clients),
        _ => check_above_zero(
            "part.every_s",
            part.every_s.ok_or_else(|| needed("every_s"))?,
        ),
    }
}

fn check_places(part: Part, object: &Objects, file_bytes: u64, clients: u32) -> Verdict {
    if !matches!(object.choice, Choice::One | Choice::Dealt) {
        let what = "part.choice: \"places\" needs object.choice = \"dealt\" or \"one\"";
        return Err(what.into());
    }
    let Some(least_bytes @ 1..) = part.apart_bytes else {
        return Err("part.apart_bytes: needed with choice = \"places\", above 0".into());
    };
    let most_bytes = part.apart_max_bytes.unwrap_or(least_bytes);
    if most_bytes < least_bytes {
        return Err(format!(
            "part.apart_max_bytes: {most_bytes}, below apart_bytes of {least_bytes}"
        ));
    }
    // Client k is reader number (first + k) / count of its object.
    let count = u64::from(object.count.unwrap_or(1));
    let last = u64::from(object.first) + u64::from(clients.max(1)) - 1;
    let place_bytes = (last / count).saturating_mul(most_bytes);
    match place_bytes < file_bytes {
        true => Ok(()),
        false => Err(format!(
            "part.apart_bytes: the last reader would begin at {place_bytes}, object.len_bytes is {file_bytes}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::verdict;

    #[test]
    fn an_object_has_what_its_choice_needs_and_nothing_else() {
        let with = |object: &str| verdict(&format!("clients = 2\nobject = {{ {object} }}"));
        for (object, key) in [
            ("choice = 'one', path = '/{n}'", "object.path"),
            ("choice = 'uniform', path = '/a', count = 2", "object.path"),
            ("choice = 'uniform', path = '/{n}'", "object.count"),
            (
                "choice = 'zipf', path = '/{n}', count = 2",
                "object.s: needed",
            ),
            (
                "choice = 'uniform', path = '/{n}', count = 2, s = 1.0",
                "object.s: only",
            ),
            (
                "choice = 'locality', path = '/{n}', count = 2, p = 0.5",
                "need 3 objects",
            ),
            ("choice = 'trace', path = '/{n}'", "object.file: needed"),
            ("choice = 'one', path = '/a b'", "object.path"),
            ("choice = 'dealt', path = '/{n}'", "object.count: needed"),
            (
                "choice = 'dealt', path = '/{n}', count = 3, first = 3",
                "object.first: 3; the last object is 2",
            ),
            (
                "choice = 'uniform', path = '/{n}', count = 3, first = 1",
                "object.first: only with",
            ),
        ] {
            let said = with(object);
            assert!(said.contains(key), "{object}: {said}");
        }
        assert_eq!(
            with("choice = 'locality', path = '/{n}', count = 3, p = 0.5"),
            ""
        );
    }

    #[test]
    fn places_lie_in_their_files_and_belong_to_dealt_ones() {
        let with = |choice: &str, part: &str| {
            let object = format!("path = '/{{n}}', count = 2, len_bytes = 1000, {choice}");
            verdict(&format!(
                "clients = 4\nobject = {{ {object} }}\npart = {{ {part} }}"
            ))
        };
        let dealt = "choice = 'dealt'";
        for (choice, part, key) in [
            (dealt, "choice = 'places'", "part.apart_bytes: needed"),
            (
                "choice = 'uniform'",
                "choice = 'places', apart_bytes = 9",
                "needs object.choice = \"dealt\"",
            ),
            (
                dealt,
                "choice = 'places', apart_bytes = 1000",
                "part.apart_bytes: the last reader would begin at 1000, object.len_bytes is 1000",
            ),
            (
                dealt,
                "choice = 'places', apart_bytes = 9, apart_max_bytes = 8",
                "part.apart_max_bytes: 8, below",
            ),
            (
                dealt,
                "choice = 'whole', apart_bytes = 9",
                "part.apart_bytes, .apart_max_bytes: only with",
            ),
        ] {
            let said = with(choice, part);
            assert!(said.contains(key), "{choice}, {part}: {said}");
        }
        let good = "choice = 'places', apart_bytes = 9, apart_max_bytes = 999";
        assert_eq!(with(dealt, good), "");
    }
}
