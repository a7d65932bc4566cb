//! All cells as Markdown: every figure, then ours over the best peer's, then means of these.

use std::fmt::Write;

use crate::cell::Cell;
use crate::figures::Figures;

/// One figure that is compared.
struct Measure {
    name: &'static str,
    /// Whether more of it is better.
    more: bool,
    of: fn(&Figures) -> f64,
}

const MEASURES: [Measure; 9] = [
    more("look-ups/s", |figures| figures.lookups_per_second),
    less("p99", |figures| figures.p99_ns),
    more("look-ups/s beside a writer", |figures| {
        figures.beside_lookups_per_second
    }),
    less("p99 beside a writer", |figures| figures.beside_p99_ns),
    more("events/s applied", |figures| {
        figures.apply_events_per_second
    }),
    more("events/s hashed and applied", |figures| {
        figures.hash_and_apply_events_per_second
    }),
    less("bytes per pair", |figures| figures.bytes_per_pair),
    less("hashing a prompt", |figures| figures.hash_us_per_prompt),
    less("hashing a prompt and p50", |figures| {
        figures.hash_us_per_prompt + figures.p50_ns / 1e3
    }),
];

const fn more(name: &'static str, of: fn(&Figures) -> f64) -> Measure {
    let more = true;
    Measure { name, more, of }
}

const fn less(name: &'static str, of: fn(&Figures) -> f64) -> Measure {
    let more = false;
    Measure { name, more, of }
}

impl Measure {
    /// Ours over the best of the others'; none where one of the two was not measured.
    fn ratio(&self, cell: &Cell) -> Option<f64> {
        let (ours, peers) = cell.indexes.split_first()?;
        let peers = peers.iter().map(self.of).filter(|&value| value > 0.0);
        let best = if self.more {
            peers.reduce(f64::max)?
        } else {
            peers.reduce(f64::min)?
        };
        let ours = (self.of)(ours);
        (ours > 0.0).then_some(ours / best)
    }
}

/// The whole report.
pub(crate) fn markdown(cells: &[Cell]) -> String {
    let mut text = String::new();
    let written = write_cells(&mut text, cells)
        .and_then(|()| write_figures(&mut text, cells))
        .and_then(|()| write_ratios(&mut text, cells))
        .and_then(|()| write_means(&mut text, cells))
        .and_then(|()| write_floors(&mut text, cells))
        .and_then(|()| write_differences(&mut text, cells));
    written.expect("text takes everything");
    text
}

fn write_cells(text: &mut String, cells: &[Cell]) -> std::fmt::Result {
    writeln!(
        text,
        "\n| workload | block | replicas | room, blocks | copies | requests | events | blocks \
         stored | removed | pairs | distinct | prompt, blocks | holders | best, blocks |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    )?;
    for cell in cells {
        let stored = cell.blocks - cell.removed_blocks;
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {stored} | {} | {} | {} | {:.0} | {:.1} \
             | {:.1} |",
            cell.workload,
            cell.block_size,
            cell.replicas,
            cell.capacity_blocks,
            cell.copies,
            cell.requests,
            cell.events,
            cell.removed_blocks,
            cell.pairs,
            cell.distinct_blocks,
            cell.prompt_blocks,
            cell.holders,
            cell.best_blocks,
        )?;
    }
    Ok(())
}

fn write_figures(text: &mut String, cells: &[Cell]) -> std::fmt::Result {
    writeln!(
        text,
        "\n| workload | block | replicas | index | look-ups/s | p50, µs | p99, µs | beside a \
         writer: look-ups/s | p99, µs | events/s | hashing a prompt, µs | events/s applied | \
         blocks/s | with hashing: events/s | blocks/s | bytes per pair | answers |\n\
         |---|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|"
    )?;
    for cell in cells {
        for figures in &cell.indexes {
            writeln!(
                text,
                "| {} | {} | {} | {} | {:.0} | {:.2} | {:.2} | {:.0} | {:.2} | {:.0} | {:.1} | \
                 {:.0} | {:.0} | {:.0} | {:.0} | {:.1} | {} |",
                cell.workload,
                cell.block_size,
                cell.replicas,
                figures.index,
                figures.lookups_per_second,
                figures.p50_ns / 1e3,
                figures.p99_ns / 1e3,
                figures.beside_lookups_per_second,
                figures.beside_p99_ns / 1e3,
                figures.beside_events_per_second,
                figures.hash_us_per_prompt,
                figures.apply_events_per_second,
                figures.apply_blocks_per_second,
                figures.hash_and_apply_events_per_second,
                figures.hash_and_apply_blocks_per_second,
                figures.bytes_per_pair,
                if figures.answers.different == 0 {
                    "right"
                } else {
                    "differ"
                },
            )?;
        }
    }
    Ok(())
}

fn write_ratios(text: &mut String, cells: &[Cell]) -> std::fmt::Result {
    write!(
        text,
        "\nOurs over the best peer's:\n\n| workload | block | replicas |"
    )?;
    MEASURES
        .iter()
        .try_for_each(|measure| write!(text, " {} |", measure.name))?;
    write!(text, "\n|---|--:|--:|{}\n", "--:|".repeat(MEASURES.len()))?;
    for cell in cells {
        write!(
            text,
            "| {} | {} | {} |",
            cell.workload, cell.block_size, cell.replicas
        )?;
        for measure in &MEASURES {
            match measure.ratio(cell) {
                Some(ratio) => write!(text, " {ratio:.2} |")?,
                None => write!(text, " |")?,
            }
        }
        writeln!(text)?;
    }
    Ok(())
}

fn write_means(text: &mut String, cells: &[Cell]) -> std::fmt::Result {
    writeln!(
        text,
        "\n| ours over the best peer's | better is | geometric mean | worst cell | best cell |\n\
         |---|---|--:|--:|--:|"
    )?;
    for measure in &MEASURES {
        let ratios: Vec<f64> = cells
            .iter()
            .filter_map(|cell| measure.ratio(cell))
            .collect();
        if ratios.is_empty() {
            continue;
        }
        let mean = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64;
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        let (better, worst, best) = if measure.more {
            ("more", least, most)
        } else {
            ("less", most, least)
        };
        let (name, mean) = (measure.name, mean.exp());
        writeln!(
            text,
            "| {name} | {better} | {mean:.2} | {worst:.2} | {best:.2} |"
        )?;
    }
    Ok(())
}

fn write_floors(text: &mut String, cells: &[Cell]) -> std::fmt::Result {
    writeln!(
        text,
        "\nWhat no index can leave out, and ours over it:\n\n| workload | block | replicas | \
         look-ups/s | ours | events/s | ours | bytes per pair | ours |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|"
    )?;
    for cell in cells {
        let (floor, Some(ours)) = (cell.floor, cell.indexes.first()) else {
            continue;
        };
        writeln!(
            text,
            "| {} | {} | {} | {:.0} | {:.3} | {:.0} | {:.3} | {:.1} | {:.2} |",
            cell.workload,
            cell.block_size,
            cell.replicas,
            floor.lookups_per_second,
            ours.lookups_per_second / floor.lookups_per_second,
            floor.events_per_second,
            ours.apply_events_per_second / floor.events_per_second,
            floor.bytes_per_pair,
            ours.bytes_per_pair / floor.bytes_per_pair,
        )?;
    }
    Ok(())
}

fn write_differences(text: &mut String, cells: &[Cell]) -> std::fmt::Result {
    let all = cells
        .iter()
        .flat_map(|cell| cell.indexes.iter().map(move |of| (cell, of)));
    let differing: Vec<_> = all.filter(|(_, of)| of.answers.different > 0).collect();
    if differing.is_empty() {
        return writeln!(text, "\nAll answers are what the replicas hold.");
    }
    writeln!(
        text,
        "\n| answers that differ from what replicas hold | prompts | of | replicas with too much \
         | with too little | the first: said, held |\n|---|--:|--:|--:|--:|--:|"
    )?;
    for (cell, figures) in differing {
        let answers = &figures.answers;
        let (_, said, held) = answers.first.unwrap_or_default();
        writeln!(
            text,
            "| {}, {} tokens, {} replicas: {} | {} | {} | {} | {} | {said}, {held} |",
            cell.workload,
            cell.block_size,
            cell.replicas,
            figures.index,
            answers.different,
            answers.prompts,
            answers.too_much,
            answers.too_little,
        )?;
    }
    Ok(())
}
