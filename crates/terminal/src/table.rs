//! Tables for a terminal.

use console::{Alignment, measure_text_width, pad_str};

use crate::{COLUMNS, colour};

/// The cells of a heading.
#[must_use]
pub fn headings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| colour::heading(text)).collect()
}

/// Lines with the columns of `rows`: the first to the left, numbers right. A table that is wider
/// than [`COLUMNS`] becomes several, each with the first column.
#[must_use]
pub fn aligned(rows: &[Vec<String>]) -> String {
    aligned_by(1, rows)
}

/// The same for rows that their first `keys` columns name: those are in each table.
#[must_use]
pub fn aligned_by(keys: usize, rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = rows.iter().map(|row| measure_text_width(&row[column]));
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let parts: Vec<String> =
        parts(keys, &widths).iter().map(|part| lines(rows, &widths, part)).collect();
    parts.join("\n")
}

/// The columns of each table, the keys in each.
fn parts(keys: usize, widths: &[usize]) -> Vec<Vec<usize>> {
    let keys: Vec<usize> = (0..keys.min(widths.len())).collect();
    let of_keys: usize = keys.iter().map(|&key| widths[key] + 2).sum();
    let (mut parts, mut taken) = (vec![keys.clone()], of_keys);
    for (column, &width) in widths.iter().enumerate().skip(keys.len()) {
        let is_alone = parts.last().is_none_or(|part| part.len() == keys.len());
        if taken + width > COLUMNS && !is_alone {
            parts.push(keys.clone());
            taken = of_keys;
        }
        taken += 2 + width;
        parts.last_mut().expect("never empty").push(column);
    }
    parts
}

fn lines(rows: &[Vec<String>], widths: &[usize], columns: &[usize]) -> String {
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for &column in columns.iter().filter(|&&column| column < row.len()) {
            let (cell, width) = (&row[column], widths[column]);
            line += &match column {
                0 => pad_str(cell, width, Alignment::Left, None).into_owned(),
                _ => format!("  {}", pad_str(cell, width, Alignment::Right, None)),
            };
        }
        text += &format!("{}\n", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_tables_become_several() {
        let row = |cell: &str| vec![cell.to_owned(); 12];
        let text = aligned(&[row("a heading"), row("1")]);
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert_eq!(text.matches("a heading").count(), 12 + 1, "{text}");
        let narrow = aligned(&[headings(&["policy", "rate"]), headings(&["lru", "1 %"])]);
        assert_eq!(narrow, "policy  rate\nlru      1 %\n");
    }
}
