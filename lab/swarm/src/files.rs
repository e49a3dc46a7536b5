//! Writes the files of a workload, for a server that serves a folder without an emulated disk.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use super::objects::Catalog;
use super::workload::Workload;
use ackpace_lab_base::content::{self, Tag};
use ackpace_lab_base::error::{Doing, LabError, Result};

/// Bytes generated and written at once.
const PIECE_BYTES: usize = 1 << 20;

/// Writes the files that do not yet have their full length; returns the total length of all files.
pub fn write(workload: &Workload, folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for (path, len_bytes) in list(workload)? {
        let file = folder.join(path.trim_start_matches('/'));
        one(&file, Tag::of(&path), len_bytes).doing(|| file.display().to_string())?;
        bytes += len_bytes;
    }
    Ok(bytes)
}

/// Paths below the served root and lengths of all files that a workload may ask for.
pub fn list(workload: &Workload) -> Result<BTreeMap<String, u64>> {
    let mut files = BTreeMap::new();
    for class in &workload.classes {
        let catalog = Catalog::new(class)?;
        for object in 0..catalog.count() {
            let wrong = |what: &str| LabError::Setup(format!("class \"{}\": {what}", class.name));
            let needed = || wrong("object.len_bytes: needed to write its files");
            let len_bytes = catalog.len_bytes(object).ok_or_else(needed)?;
            let path = catalog.path(object);
            let other = files.insert(path, len_bytes);
            if other.is_some_and(|other| other != len_bytes) {
                let what = "object.len_bytes: another class has these files in another length";
                return Err(wrong(what));
            }
        }
    }
    Ok(files)
}

fn one(path: &Path, tag: Tag, len_bytes: u64) -> std::io::Result<()> {
    if path.metadata().is_ok_and(|there| there.len() == len_bytes) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // The file reaches its length only when it is complete, so an interrupted run leaves no file that looks
    // finished.
    let mut file = File::create(path)?;
    let (mut piece, mut at) = (vec![0; PIECE_BYTES.min(len_bytes as usize)], 0);
    while at < len_bytes {
        let len = (len_bytes - at).min(PIECE_BYTES as u64) as usize;
        content::fill(tag, at, &mut piece[..len]);
        file.write_all(&piece[..len])?;
        at += len as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Choice, Class, Objects};

    #[test]
    fn each_object_becomes_a_file_of_its_bytes_and_a_second_length_is_refused() {
        let mut object = Objects::set(Choice::Uniform, "/s/{n}.bin", 3);
        object.len_bytes = Some(5000);
        let mut workload = Workload {
            classes: vec![
                Class::new("a", 1, object.clone()),
                Class::new("b", 1, object),
            ],
            ..Workload::default()
        };
        let folder = std::env::temp_dir().join(format!("ackpace-files-{}", std::process::id()));
        let written = write(&workload, &folder).unwrap();
        let two = std::fs::read(folder.join("s/2.bin")).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!((written, two.len()), (15_000, 5000));
        assert_eq!(content::first_wrong(Tag::of("s/2.bin"), 0, &two), None);
        workload.classes[1].object.len_bytes = Some(5001);
        assert!(
            list(&workload)
                .unwrap_err()
                .to_string()
                .contains("another length")
        );
        workload.classes[0].object.len_bytes = None;
        assert!(list(&workload).unwrap_err().to_string().contains("needed"));
    }
}
