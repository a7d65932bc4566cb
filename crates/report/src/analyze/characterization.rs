//! Characterization of a trace as JSON, with the field names of `headstart_trace::characterize`.

use headstart_analysis::results::Analysis;
use headstart_trace::characterize::report::{Hits, Next, Reuse, SessionKind, Skew};
use headstart_trace::characterize::{Characterization, Fit, Spread};
use serde_json::{Map, Value, json};

/// The object under `characterization`.
pub(super) fn characterization(analysis: &Analysis) -> Value {
    let numbers = &analysis.characterization;
    let mut all = Map::new();
    let mut put = |name: &str, value: Value| drop(all.insert(name.to_owned(), value));
    let sampling = &numbers.sampling;
    put(
        "sampling",
        json!({
            "block_rate": sampling.block_rate,
            "session_rate": sampling.session_rate,
            "user_rate": sampling.user_rate,
        }),
    );
    put("ideal", ideal(numbers));
    // Without times there is nothing to say of durations.
    let is_dated = analysis.span_s.is_some();
    let dated = |value: Value| if is_dated { value } else { Value::Null };
    put("over_time", dated(over_time(numbers)));
    put("types", types(analysis));
    put("turns", turns(numbers));
    put("origins", origins(numbers));
    put("block_skew", skew(&numbers.block_skew));
    put("session_skew", skew(&numbers.session_skew));
    put("user_skew", numbers.user_skew.as_ref().map_or(Value::Null, skew));
    put("sessions", sessions(numbers, is_dated));
    put("users", users(numbers));
    put("next_turn", dated(next_turn(analysis)));
    put("reuse", dated(reuse_times(analysis)));
    put("locality", locality(numbers));
    put("lifespan", dated(lifespan(numbers)));
    put("sizes", sizes(numbers));
    put("capacity", capacity(numbers));
    Value::Object(all)
}

fn ideal(numbers: &Characterization) -> Value {
    let ideal = &numbers.ideal;
    json!({
        "references": ideal.references,
        "hits": ideal.hits,
        "block_hit_rate": ideal.block_hit_rate,
        "token_hit_rate": ideal.token_hit_rate,
        "distinct_blocks": ideal.distinct_blocks,
        "never_reused": ideal.never_reused,
        "never_reused_share": ideal.never_reused_share,
        "orphans": ideal.orphans,
    })
}

fn over_time(numbers: &Characterization) -> Value {
    let buckets = numbers.over_time.buckets.iter().map(|moment| {
        json!({
            "requests": moment.requests,
            "references": moment.references,
            "hits": moment.hits,
            "hit_rate": moment.hit_rate,
            "p_next": moment.p_next,
            "live_blocks": moment.live_blocks,
        })
    });
    json!({"bucket_s": numbers.over_time.bucket_s, "buckets": buckets.collect::<Vec<_>>()})
}

fn hits(hits: &Hits) -> Value {
    json!({
        "requests": hits.requests,
        "references": hits.references,
        "hits": hits.hits,
        "hit_rate": hits.rate(),
    })
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
    let turns = numbers.turns.iter().map(|share| {
        json!({
            "turn": share.turn,
            "all": hits(&share.all),
            "share_of_hits": share.share_of_hits,
        })
    });
    turns.collect()
}

fn origins(numbers: &Characterization) -> Value {
    let origins = &numbers.origins;
    json!({
        "same_session": origins.same_session,
        "other_session": origins.other_session,
        "unknown_session": origins.unknown_session,
        "same_user": origins.same_user,
        "other_user": origins.other_user,
        "unknown_user": origins.unknown_user,
    })
}

fn skew(skew: &Skew) -> Value {
    json!({
        "owners": skew.owners,
        "total": skew.total,
        "gini": skew.gini,
        "top_1_percent": skew.top_1_percent,
        "top_10_percent": skew.top_10_percent,
        "lorenz": skew.lorenz,
    })
}

fn spread(spread: &Spread) -> Value {
    json!({
        "count": spread.count,
        "mean": spread.mean,
        "sd": spread.sd,
        "p10": spread.p10,
        "p50": spread.p50,
        "p90": spread.p90,
        "p99": spread.p99,
        "max": spread.max,
    })
}

fn sessions(numbers: &Characterization, is_dated: bool) -> Value {
    let kind = |kind: &SessionKind| {
        json!({
            "sessions": kind.sessions,
            "all": hits(&kind.all),
            "share_of_hits": kind.share_of_hits,
            "prompt_tokens_mean": kind.prompt_tokens_mean,
        })
    };
    let sessions = &numbers.sessions;
    json!({
        "count": sessions.count,
        "requests": spread(&sessions.requests),
        "turns": spread(&sessions.turns),
        "length_s": is_dated.then(|| spread(&sessions.length_s)),
        "single": kind(&sessions.single),
        "multi": kind(&sessions.multi),
        "without": sessions.without,
    })
}

fn users(numbers: &Characterization) -> Value {
    let Some(users) = &numbers.users else {
        return Value::Null;
    };
    json!({
        "count": users.count,
        "requests": spread(&users.requests),
        "sessions": spread(&users.sessions),
        "turns": spread(&users.turns),
        "hits": spread(&users.hits),
    })
}

fn next(next: &Next) -> Value {
    json!({
        "followed": next.followed,
        "ended": next.ended,
        "open": next.open,
        "p_next": next.p_next,
    })
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
    let offsets = numbers.locality.by_offset.iter().map(|place| {
        json!({
            "from": place.from,
            "until": place.until,
            "references": place.references,
            "hits": place.hits,
            "hit_rate": place.hit_rate,
        })
    });
    let strides = numbers.locality.by_stride.iter().map(|pair| {
        json!({
            "stride": pair.stride,
            "pairs": pair.pairs,
            "both": pair.both,
            "hit_rate": pair.hit_rate,
        })
    });
    json!({
        "by_offset": offsets.collect::<Vec<_>>(),
        "by_stride": strides.collect::<Vec<_>>(),
    })
}

fn lifespan(numbers: &Characterization) -> Value {
    json!({
        "reused_s": spread(&numbers.lifespan.reused_s),
        "all_s": spread(&numbers.lifespan.all_s),
        "open_share": numbers.lifespan.open_share,
    })
}

fn sizes(numbers: &Characterization) -> Value {
    let sizes = &numbers.sizes;
    json!({
        "prompt_tokens": spread(&sizes.prompt_tokens),
        "output_tokens": spread(&sizes.output_tokens),
        "kv_bytes_per_token": sizes.kv_bytes_per_token,
        "request_bytes_mean": sizes.request_bytes_mean,
        "device_bytes": sizes.device_bytes,
        "requests_in_device": sizes.requests_in_device,
    })
}

fn capacity(numbers: &Characterization) -> Value {
    let capacity = &numbers.capacity;
    json!({
        "peak_blocks": capacity.peak_blocks,
        "mean_blocks": capacity.mean_blocks,
        "peak_bytes": capacity.peak_bytes,
        "peak_of_device": capacity.peak_of_device,
        "lru_99_percent_blocks": capacity.lru_99_percent_blocks,
    })
}
