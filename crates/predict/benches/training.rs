//! Time of training on encoded texts, and of a prediction.
//!
//! `cargo bench -p headstart-predict --bench training -- [examples] [values]`

use std::error::Error;
use std::ops::ControlFlow;
use std::time::Instant;

use headstart_core::Rng;
use headstart_predict::text::TextOptions;
use headstart_predict::{
    ConversationOutcome, Dataset, DatasetSplit, Definition, Label, Parts, SplitShares,
    TrainOptions, train,
};

const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let examples = numbers.first().copied().unwrap_or(20_000);
    let dims = numbers.get(1).copied().unwrap_or(384);
    println!("| texts | examples learnt from | values each | seconds | µs per prediction |");
    println!("|---|---|---|---|---|");
    for parts in [Parts::Joined, Parts::CurrentAndJoined] {
        // 70 % are learnt from.
        let data = random(examples * 10 / 7, dims, parts)?;
        let split = DatasetSplit::new(&data.labels, SplitShares::default(), 1);
        let mut seconds = Vec::new();
        let mut micros = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let options = TrainOptions::default();
            let trained = train(&data, &split, &options, 0, &mut |_| ControlFlow::Continue(()))?;
            seconds.push(start.elapsed().as_secs_f64());
            let start = Instant::now();
            let said =
                (0..1000).filter(|&at| trained.model.predict_rows(data.row(at))[0].is_some());
            assert_eq!(said.count(), 1000);
            micros.push(start.elapsed().as_secs_f64() * 1e3);
        }
        let [seconds, micros] = [seconds, micros].map(median);
        let (samples, width) = (split.train.len(), data.definition.width());
        println!("| {} | {samples} | {width} | {seconds:.2} | {micros:.1} |", parts.count());
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Rows as an encoder gives them, and outcomes that they tell a little about.
fn random(count: usize, dims: usize, parts: Parts) -> Result<Dataset, Box<dyn Error>> {
    let mut rng = Rng::new(1);
    let definition = Definition {
        encoder: "random".to_owned(),
        dims,
        text: TextOptions::default(),
        parts,
        behaviour: false,
        turn_cap: 20,
    };
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for at in 0..count as u64 {
        let row: Vec<f32> = (1..definition.width()).map(|_| rng.next_f64() as f32 - 0.5).collect();
        let continued = rng.next_f64() < 0.5 + f64::from(row[0]) / 2.0;
        let turn = 1 + rng.below(5) as u16;
        values.extend(row);
        values.push(f32::from(turn));
        let outcome =
            if continued { ConversationOutcome::Continued } else { ConversationOutcome::Ended };
        labels.push(Label { outcome, turn, conversation: at / 2, group: at / 2, truth: None });
    }
    Ok(Dataset::new(definition, values, labels)?)
}
