//! One field of a form, read in place: a form passes on as it came.

/// Most bytes of a form that are searched for a field: some milliseconds.
const SEARCHED_BYTES: usize = 64 << 20;

/// Longest value that is read, bytes.
const VALUE_BYTES: usize = 1 << 10;

/// The boundary that a `Content-Type` names, if it is a form.
pub(super) fn boundary(content_type: &str) -> Option<&str> {
    let (kind, parameters) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let mut parameters = parameters.split(';').filter_map(|parameter| parameter.split_once('='));
    let (_, value) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("boundary"))?;
    let value = value.trim().trim_matches('"');
    (!value.is_empty()).then_some(value)
}

/// The text of the first field `name`, where it is short and has no file name.
pub(super) fn field<'a>(body: &'a [u8], boundary: &str, name: &str) -> Option<&'a str> {
    let delimiter = format!("--{boundary}");
    let wanted = format!("name=\"{name}\"");
    let mut rest = &body[..body.len().min(SEARCHED_BYTES)];
    loop {
        let start = find(rest, delimiter.as_bytes())? + delimiter.len();
        rest = &rest[start..];
        let head_end = find(rest, b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&rest[..head_end.min(VALUE_BYTES)]);
        let is_wanted = head.split(['\r', '\n', ';']).any(|part| part.trim() == wanted);
        // A part with a file name is a file, whatever its field is called.
        if is_wanted && !head.contains("filename") {
            let value = &rest[head_end + 4..];
            let end = find(value, b"\r\n--")?;
            let value = value[..end].get(..end.min(VALUE_BYTES))?;
            return std::str::from_utf8(value).ok();
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(haystack, needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_beside_a_file() {
        let kind = "multipart/form-data; charset=x; boundary=\"b7\"";
        let boundary = boundary(kind).expect("a form");
        let form = "--b7\r\nContent-Disposition: form-data; name=\"file\"; filename=\"model\"\r\n\
                    \r\nname=\"model\"\r\n\r\nno\r\n--b7\r\n\
                    content-disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n--b7--\r\n";
        assert_eq!(field(form.as_bytes(), boundary, "model"), Some("whisper"));
        assert_eq!(field(form.as_bytes(), boundary, "language"), None);
        assert_eq!(field(b"--b7", boundary, "model"), None);
        assert_eq!(super::boundary("application/json"), None);
        assert_eq!(super::boundary("multipart/form-data; boundary="), None);
    }
}
