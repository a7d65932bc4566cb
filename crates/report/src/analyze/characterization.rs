//! Characterization of a trace as JSON, with the field names of `headstart_trace::characterize`.

use headstart_analysis::results::Analysis;
use headstart_trace::characterize::report::{Hits, Next, Reuse, SessionKind, Skew, Users};
use headstart_trace::characterize::{Characterization, Fit, Spread};
use serde_json::{Map, Value, json};

/// The object under `characterization`.
pub(super) fn characterization(analysis: &Analysis) -> Value {
    let numbers = &analysis.characterization;
    // Without times there is nothing to say of durations.
    let is_dated = analysis.span_s.is_some();
    let dated = |value: Value| if is_dated { value } else { Value::Null };
    json!({
        "sampling": fields!(numbers.sampling => block_rate, session_rate, user_rate),
        "ideal": fields!(
            numbers.ideal => references, hits, block_hit_rate, token_hit_rate, distinct_blocks,
            never_reused, never_reused_share, orphans
        ),
        "over_time": dated(over_time(numbers)),
        "types": types(analysis),
        "turns": turns(numbers),
        "origins": fields!(
            numbers.origins => same_session, other_session, unknown_session, same_user,
            other_user, unknown_user
        ),
        "block_skew": skew(&numbers.block_skew),
        "session_skew": skew(&numbers.session_skew),
        "user_skew": numbers.user_skew.as_ref().map(skew),
        "sessions": sessions(numbers, is_dated),
        "users": numbers.users.as_ref().map(users),
        "next_turn": dated(next_turn(analysis)),
        "reuse": dated(reuse_times(analysis)),
        "locality": locality(numbers),
        "lifespan": dated(
            fields!(numbers.lifespan => reused_s(spread), all_s(spread), open_share)
        ),
        "sizes": fields!(
            numbers.sizes => prompt_tokens(spread), output_tokens(spread), kv_bytes_per_token,
            request_bytes_mean, device_bytes, requests_in_device
        ),
        "capacity": fields!(
            numbers.capacity => peak_blocks, mean_blocks, peak_bytes, peak_of_device,
            lru_99_percent_blocks
        ),
    })
}

fn over_time(numbers: &Characterization) -> Value {
    let buckets = numbers.over_time.buckets.iter().map(
        |moment| fields!(*moment => requests, references, hits, hit_rate, p_next, live_blocks),
    );
    json!({"bucket_s": numbers.over_time.bucket_s, "buckets": buckets.collect::<Vec<_>>()})
}

fn hits(hits: &Hits) -> Value {
    let mut all = fields!(*hits => requests, references, hits);
    all["hit_rate"] = json!(hits.rate());
    all
}

fn types(analysis: &Analysis) -> Value {
    let types = analysis.characterization.types.iter().map(|share| {
        json!({
            "type": analysis.type_name(share.request_type),
            "all": hits(&share.all),
            "single": hits(&share.single),
            "multi": hits(&share.multi),
            "first_turn": hits(&share.first_turn),
            "later_turns": hits(&share.later_turns),
            "share_of_hits": share.share_of_hits,
        })
    });
    types.collect()
}

fn turns(numbers: &Characterization) -> Value {
    let turns = numbers.turns.iter();
    turns.map(|share| fields!(*share => turn, all(hits), share_of_hits)).collect()
}

fn skew(skew: &Skew) -> Value {
    fields!(*skew => owners, total, gini, top_1_percent, top_10_percent, lorenz)
}

fn spread(spread: &Spread) -> Value {
    fields!(*spread => count, mean, sd, p10, p50, p90, p99, max)
}

fn kind(kind: &SessionKind) -> Value {
    fields!(*kind => sessions, all(hits), share_of_hits, prompt_tokens_mean)
}

fn sessions(numbers: &Characterization, is_dated: bool) -> Value {
    let length = |length: &Spread| is_dated.then(|| spread(length));
    fields!(
        numbers.sessions => count, requests(spread), turns(spread), length_s(length),
        single(kind), multi(kind), without
    )
}

fn users(users: &Users) -> Value {
    fields!(*users => count, requests(spread), sessions(spread), turns(spread), hits(spread))
}

fn next(next: &Next) -> Value {
    fields!(*next => followed, ended, open, p_next)
}

fn next_turn(analysis: &Analysis) -> Value {
    let turns = &analysis.characterization.next_turn;
    let classes = turns.classes.iter().map(|class| {
        json!({
            "type": analysis.type_name(class.request_type),
            "turn": class.turn,
            "next": next(&class.next),
        })
    });
    json!({
        "horizon_s": turns.horizon_s,
        "all": next(&turns.all),
        "classes": classes.collect::<Vec<_>>(),
        "gap_s": spread(&turns.gap_s),
        "within": turns.within,
    })
}

fn reuse_times(analysis: &Analysis) -> Value {
    let times = &analysis.characterization.reuse;
    let by_type = times
        .by_type
        .iter()
        .map(|(index, times)| json!({"type": analysis.type_name(*index), "reuse": reuse(times)}));
    let by_turn = times.by_turn.iter();
    let by_turn = by_turn.map(|(turn, times)| json!({"turn": turn, "reuse": reuse(times)}));
    json!({
        "all": reuse(&times.all),
        "by_type": by_type.collect::<Vec<_>>(),
        "by_turn": by_turn.collect::<Vec<_>>(),
    })
}

fn reuse(reuse: &Reuse) -> Value {
    let fit = |fit: &Fit| {
        let parameters = fit.parameters.iter();
        let parameters = parameters.map(|(name, value)| ((*name).to_owned(), json!(value)));
        json!({
            "model": fit.model.name(),
            "parameters": parameters.collect::<Map<_, _>>(),
            "log_likelihood": fit.log_likelihood,
            "aic": fit.aic,
            "ks": fit.ks,
        })
    };
    json!({
        "at_once": reuse.at_once,
        "seconds": spread(&reuse.seconds),
        "observations": reuse.fits.observations,
        "fits": reuse.fits.fits.iter().map(fit).collect::<Vec<_>>(),
        "cdf": reuse.cdf,
    })
}

fn locality(numbers: &Characterization) -> Value {
    let offsets = numbers.locality.by_offset.iter();
    let offsets = offsets.map(|at| fields!(*at => from, until, references, hits, hit_rate));
    let strides = numbers.locality.by_stride.iter();
    let strides = strides.map(|pair| fields!(*pair => stride, pairs, both, hit_rate));
    json!({
        "by_offset": offsets.collect::<Vec<_>>(),
        "by_stride": strides.collect::<Vec<_>>(),
    })
}
