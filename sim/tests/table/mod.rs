//! What tests of several seeds share: their runs, and the table with the medians.

use std::fmt;

/// Results of a run with each seed, in their order. Two runs at a time: other tests run beside this one.
pub fn over_seeds<R: Send>(seeds: &[u64], run: impl Fn(u64) -> R + Sync) -> Vec<R> {
    let run = &run;
    let mut results = Vec::new();
    for pair in seeds.chunks(2) {
        std::thread::scope(|scope| {
            let runs: Vec<_> = pair
                .iter()
                .map(|seed| scope.spawn(move || run(*seed)))
                .collect();
            for run in runs {
                let result = run.join();
                results.push(result.unwrap_or_else(|why| std::panic::resume_unwind(why)));
            }
        });
    }
    results
}

/// Figures in rows: those of one seed, or medians. Printed, it says of which.
pub struct Table<const N: usize> {
    of: String,
    labels: &'static str,
    columns: [(&'static str, usize); N],
    /// A row's name, and its figures.
    pub rows: Vec<(String, [f64; N])>,
}

impl<const N: usize> Table<N> {
    /// A table for the figures of this seed. `labels` stands above the rows' names; a column has a title and a number of
    /// decimals.
    pub fn new(seed: u64, labels: &'static str, columns: [(&'static str, usize); N]) -> Self {
        Table {
            of: format!("seed {seed}"),
            labels,
            columns,
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, label: String, figures: [f64; N]) {
        self.rows.push((label, figures));
    }

    /// The table of the medians, each figure by itself: two columns of a row may be of two seeds.
    pub fn medians(seeds: &[Self]) -> Self {
        let row = |(nth, (label, _)): (usize, &(String, [f64; N]))| {
            let of = |column: usize| {
                let figures = seeds.iter().map(|seed| seed.rows[nth].1[column]);
                median(figures.collect())
            };
            (label.clone(), std::array::from_fn(of))
        };
        Table {
            of: format!("medians of {} seeds", seeds.len()),
            labels: seeds[0].labels,
            columns: seeds[0].columns,
            rows: seeds[0].rows.iter().enumerate().map(row).collect(),
        }
    }
}

/// The middle one of an odd number of figures.
pub fn median(mut figures: Vec<f64>) -> f64 {
    assert!(figures.len() % 2 == 1, "{} figures", figures.len());
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let lengths = self.rows.iter().map(|(label, _)| label.len());
        let label_len = lengths.fold(self.labels.len(), usize::max);
        write!(out, "{}\n{:label_len$}", self.of, self.labels)?;
        for (title, _) in self.columns {
            write!(out, "  {title:>7}")?;
        }
        writeln!(out)?;
        for (label, figures) in &self.rows {
            write!(out, "{label:label_len$}")?;
            for ((title, decimals), figure) in self.columns.iter().zip(figures) {
                let width = title.len().max(7);
                write!(out, "  {figure:width$.decimals$}")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

/// Fails if the table `sim/tests/NAME.txt` differs from this one; with UPDATE_TABLES=1, writes it first.
pub fn compare(name: &str, table: &str) {
    let path = format!("{}/tests/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_TABLES").is_some() {
        std::fs::write(&path, table).expect("the table");
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        known == table,
        "{path} differs; CONTRIBUTING.md says why it may and how to write it anew; now:\n{table}"
    );
}
