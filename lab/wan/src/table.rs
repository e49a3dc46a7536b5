//! Text tables for a terminal.

/// Formats lines of cells in columns as wide as their widest cell; numbers are right-aligned.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |nth: usize| {
        let cells = rows.iter().filter_map(|row| row.get(nth));
        let cells = cells.map(|cell| cell.chars().count());
        cells
            .chain(head.get(nth).map(|cell| cell.chars().count()))
            .max()
    };
    let is_number =
        |cell: &str| cell.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    let line = |cells: Vec<&str>| {
        let cells = cells.into_iter().enumerate().map(|(nth, cell)| {
            let width = width(nth).unwrap_or(0);
            match is_number(cell) {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            }
        });
        let line: Vec<String> = cells.collect();
        line.join("  ").trim_end().to_owned() + "\n"
    };
    let mut text = line(head.to_vec());
    for row in rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn words_stand_left_and_numbers_right() {
        let rows = [
            vec!["a".to_owned(), "7".to_owned()],
            vec!["bcd".to_owned(), "+10".to_owned()],
        ];
        assert_eq!(
            super::table(&["x", "n"], &rows),
            "x    n\na      7\nbcd  +10\n"
        );
    }
}
