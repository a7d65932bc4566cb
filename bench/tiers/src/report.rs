//! All figures as Markdown: the machine, what was measured, ratios of each round.

use std::fmt::{self, Write};

use crate::figures::{Figures, Point, Range, Series, What};
use crate::machine::Machine;
use crate::options::Options;

/// Name of our tier's subjects begins so.
const OURS: &str = "ours";
const FOYER: &str = "foyer";
const FIO: &str = "fio";

/// The whole report.
pub(crate) fn markdown(options: &Options, machine: &Machine, figures: &Figures) -> String {
    let mut text = String::new();
    let written = write_machine(&mut text, options, machine)
        .and_then(|()| write_disk(&mut text, figures))
        .and_then(|()| write_ratios(&mut text, options, figures))
        .and_then(|()| write_opening(&mut text, figures))
        .and_then(|()| write_memory(&mut text, figures));
    written.expect("text takes everything");
    text
}

fn write_machine(text: &mut String, options: &Options, machine: &Machine) -> fmt::Result {
    let fio = machine.fio.as_deref().unwrap_or("no fio");
    let Machine {
        cpu, cpus, kernel, ..
    } = machine;
    let Options {
        rounds,
        size_mib,
        depth,
        group_mib,
        window_mib,
        ..
    } = options;
    writeln!(
        text,
        "{cpu}, {cpus} CPUs, {:.0} GiB, Linux {kernel}, {}, {fio}, foyer 0.22.6.\n\
         {rounds} rounds, {size_mib} MiB a data set, {depth} reads at once, groups of {group_mib} \
         MiB, {window_mib} MiB put ahead. Medians, least to most in brackets; MB are 10^6 bytes.",
        machine.memory_mib as f64 / 1024.0,
        machine.file_system,
    )
}

fn write_disk(text: &mut String, figures: &Figures) -> fmt::Result {
    let series: Vec<&Series> = on_disk(figures).collect();
    if series.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "\n| what | KiB | who | MB/s | CPU s per GB | found | from memory | syncs |\n\
         |---|--:|---|--:|--:|--:|--:|--:|"
    )?;
    for series in series {
        let key = &series.key;
        let median = |of: fn(&Point) -> f64| series.range(of).median;
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {:.1} % | {:.1} % | {:.0} |",
            key.what.name(),
            key.kib,
            key.subject,
            spread(series.range(|point| point.mb_per_s), 0),
            spread(series.range(|point| point.cpu_s_per_gb), 3),
            100.0 * median(|point| point.hit_share),
            100.0 * median(|point| point.memory_share),
            median(|point| point.syncs as f64),
        )?;
    }
    Ok(())
}

/// One thing over another.
struct Ratio {
    what: What,
    kib: Option<usize>,
    of: &'static str,
    /// The subject of the denominator.
    over: &'static str,
    over_what: What,
    over_kib: Option<usize>,
}

fn ratios(kib: usize) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    let kib = Some(kib);
    for of in [OURS, FOYER] {
        let mut add = |what, over, over_what, over_kib| {
            ratios.push(Ratio {
                what,
                kib,
                of,
                over,
                over_what,
                over_kib,
            });
        };
        add(What::WriteDurable, FIO, What::WriteDurable, None);
        add(What::WriteDurable, FIO, What::Write, None);
        add(What::WriteDurable, FIO, What::WriteOver, None);
        if of == OURS {
            add(What::WriteDurable, FOYER, What::WriteDurable, kib);
            add(What::WriteDurable, FOYER, What::Write, kib);
        }
        for read in [What::ReadSequential, What::ReadRandom] {
            add(read, FIO, read, kib);
            if of == OURS {
                add(read, FOYER, read, kib);
            }
        }
    }
    ratios
}

fn write_ratios(text: &mut String, options: &Options, figures: &Figures) -> fmt::Result {
    let mut rows = String::new();
    for &kib in &options.record_kib {
        for ratio in ratios(kib) {
            let found = figures.fastest(ratio.of, ratio.what, ratio.kib);
            let over = figures.fastest(ratio.over, ratio.over_what, ratio.over_kib);
            let (Some(found), Some(over)) = (found, over) else {
                continue;
            };
            writeln!(
                rows,
                "| {} | {kib} | {} | {}: {} | {} | {} |",
                ratio.what.name(),
                found.key.subject,
                over.key.subject,
                ratio.over_what.name(),
                spread(found.over(over, |point| point.mb_per_s), 2),
                spread(found.over(over, |point| point.cpu_s_per_gb), 2),
            )?;
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    write!(
        text,
        "\nRatios of each round, with the faster of fio's buffers and foyer's engines; more MB/s \
         is better, less CPU is better:\n\n\
         | what | KiB | who | over | MB/s | CPU s per GB |\n|---|--:|---|---|--:|--:|\n{rows}"
    )
}

/// Writes the opening times, which count here and nowhere else.
fn write_opening(text: &mut String, figures: &Figures) -> fmt::Result {
    let opened = |series: &&Series| {
        series.key.what == What::WriteDurable && series.range(|point| point.open_s).max > 0.0
    };
    for series in figures.series.iter().filter(opened) {
        let key = &series.key;
        let range = spread(series.range(|point| point.open_s), 3);
        writeln!(
            text,
            "\nOpening {} for {} KiB: {range} s.",
            key.subject, key.kib
        )?;
    }
    Ok(())
}

fn write_memory(text: &mut String, figures: &Figures) -> fmt::Result {
    let series: Vec<&Series> = in_memory(figures).collect();
    if series.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "\n| in host memory | KiB | threads | MB/s | over the faster memcpy |\n\
         |---|--:|---|--:|--:|"
    )?;
    for series in series {
        let key = &series.key;
        let copies = [What::Copy, What::CopyParts];
        let copies = copies.map(|what| figures.fastest(&key.subject, what, Some(key.kib)));
        let floor = copies.into_iter().flatten().max_by(|one, other| {
            let speed = |series: &Series| series.range(|point| point.mb_per_s).median;
            speed(one).total_cmp(&speed(other))
        });
        let ratio = floor.map(|floor| spread(series.over(floor, |point| point.mb_per_s), 2));
        writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            key.what.name(),
            key.kib,
            key.subject,
            spread(series.range(|point| point.mb_per_s), 0),
            ratio.unwrap_or_default(),
        )?;
    }
    Ok(())
}

/// In the order of tables: by what was done, then by size; rounds begin with different subjects.
fn on_disk(figures: &Figures) -> impl Iterator<Item = &Series> {
    sorted(figures, |what| !what.is_in_memory())
}

fn in_memory(figures: &Figures) -> impl Iterator<Item = &Series> {
    sorted(figures, What::is_in_memory)
}

fn sorted(figures: &Figures, is_in: fn(What) -> bool) -> impl Iterator<Item = &Series> {
    let of = figures.series.iter();
    let mut series: Vec<&Series> = of.filter(|series| is_in(series.key.what)).collect();
    series.sort_by_key(|series| {
        let key = &series.key;
        (key.what as usize, key.kib, key.subject.clone())
    });
    series.into_iter()
}

fn spread(range: Range, digits: usize) -> String {
    let Range { median, min, max } = range;
    format!("{median:.digits$} ({min:.digits$} to {max:.digits$})")
}
