//! The parts of a message's content.
//!
//! Source: vLLM 0.32, `renderers/chat_utils.py`: types of parts, the fields that it knows, and the
//! order in which it looks for media without a type.

use serde_json::{Map, Value, json};

use super::NoExactTokens;

/// One part, as an engine understands it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ContentPart {
    /// Text, with the fields that the engine does not know.
    Text { text: String, unknown: Map<String, Value> },
    /// The name of a tool that is defined elsewhere.
    ToolReference(String),
    /// An image, audio or video, under the name that templates know it by.
    Medium { modality: &'static str, unknown: Map<String, Value> },
}

/// Fields of parts that vLLM declares; it keeps others for the template.
const KNOWN_FIELDS: [&str; 18] = [
    "audio_embeds",
    "audio_url",
    "closed",
    "data",
    "file",
    "image_embeds",
    "image_pil",
    "image_url",
    "input_audio",
    "name",
    "prompt_cache_breakpoint",
    "refusal",
    "text",
    "thinking",
    "type",
    "uuid",
    "video_embeds",
    "video_url",
];

/// Fields that make a part a medium where no type says so, and what they are called then.
const MEDIA_FIELDS: [(&str, &str); 9] = [
    ("image_url", "image"),
    ("image_pil", "image"),
    ("image_embeds", "image"),
    ("audio_embeds", "audio"),
    ("video_embeds", "video"),
    ("prompt_embeds", "prompt_embeds"),
    ("audio_url", "audio"),
    ("input_audio", "audio"),
    ("video_url", "video"),
];

/// Reads a part; `None` where the engine leaves it out.
///
/// # Errors
/// When the engine refuses it.
pub(super) fn read(part: Value) -> Result<Option<ContentPart>, NoExactTokens> {
    let mut fields = match part {
        Value::String(text) => {
            let unknown = Map::new();
            return Ok(Some(ContentPart::Text { text, unknown }));
        }
        Value::Object(fields) => fields,
        _ => return Err(NoExactTokens::Malformed("content")),
    };
    let has_id = fields.get("uuid").is_some_and(|id| !id.is_null());
    let kind = match fields.get("type") {
        // vLLM reads a part with a `uuid` by its fields, whatever its type says.
        Some(Value::String(kind)) if !has_id => kind.clone(),
        None | Some(Value::Null | Value::String(_)) => return medium_without_type(&fields),
        Some(_) => return Err(NoExactTokens::Malformed("content.type")),
    };
    // Without a text, a part of the first two types is left out; the others are refused.
    let (field, may_be_absent) = match kind.as_str() {
        "text" => ("text", true),
        "refusal" => ("refusal", true),
        "input_text" | "output_text" => ("text", false),
        "thinking" => ("thinking", false),
        "tool_reference" => {
            let name = fields.get("name").and_then(Value::as_str);
            let name = name.ok_or(NoExactTokens::Malformed("content.name"))?;
            return Ok(Some(ContentPart::ToolReference(name.to_owned())));
        }
        "input_image" => return Ok(Some(medium("image", &fields))),
        kind => {
            let known = MEDIA_FIELDS.iter().find(|(name, _)| *name == kind);
            let (_, modality) = known.ok_or(NoExactTokens::Malformed("content.type"))?;
            return Ok(Some(medium(modality, &fields)));
        }
    };
    match super::take(&mut fields, field) {
        Some(Value::String(text)) => {
            Ok(Some(ContentPart::Text { text, unknown: unknown_fields(&fields) }))
        }
        None if may_be_absent => Ok(None),
        _ => Err(NoExactTokens::Malformed("content.text")),
    }
}

fn medium_without_type(fields: &Map<String, Value>) -> Result<Option<ContentPart>, NoExactTokens> {
    let named = MEDIA_FIELDS.iter().find(|(name, _)| fields.contains_key(*name));
    match named {
        Some((_, modality)) => Ok(Some(medium(modality, fields))),
        None => Err(NoExactTokens::Malformed("content.type")),
    }
}

fn medium(modality: &'static str, fields: &Map<String, Value>) -> ContentPart {
    ContentPart::Medium { modality, unknown: unknown_fields(fields) }
}

fn unknown_fields(fields: &Map<String, Value>) -> Map<String, Value> {
    let unknown = fields.iter().filter(|(name, _)| !KNOWN_FIELDS.contains(&name.as_str()));
    unknown.map(|(name, value)| (name.clone(), value.clone())).collect()
}

impl ContentPart {
    /// The object that a template gets for it.
    pub(super) fn into_value(self) -> Value {
        let (mut part, unknown) = match self {
            Self::Text { text, unknown } => (json!({"type": "text", "text": text}), unknown),
            Self::ToolReference(name) => {
                (json!({"type": "tool_reference", "name": name}), Map::new())
            }
            // Embeddings stand in the text as one special token.
            Self::Medium { modality: "prompt_embeds", .. } => {
                (json!({"type": "text", "text": "<prompt_embeds>"}), Map::new())
            }
            Self::Medium { modality, unknown } => (json!({"type": modality}), unknown),
        };
        // `unknown` holds no declared field, so nothing that was set above is replaced.
        for (name, value) in unknown {
            part[name] = value;
        }
        part
    }
}
