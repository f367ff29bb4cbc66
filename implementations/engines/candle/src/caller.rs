//! What a caller does with `index_pos`: candle's models do not count tokens themselves, so this is where it goes right or wrong.

use anyhow::{bail, Result};

/// How the position of a call is chosen. Every way but `Right` is a known mistake, one line each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Caller {
    /// `index_pos` counts tokens.
    Right,
    /// `index_pos` counts calls.
    ByCall,
    /// `index_pos` is kept when the cache is emptied.
    Cleared,
    /// Later calls are this far off.
    Shift(i64),
    /// Every call is at position 0.
    Zero,
    /// A later part of a prompt is fed at its own length instead of the length before it.
    OwnLength,
    /// The second call feeds the last token of the first again, as a loop does that starts from the prompt's last token.
    LastTwice,
}

impl Caller {
    pub fn parse(word: &str) -> Result<Self> {
        Ok(match word {
            "right" => Self::Right,
            "by_call" => Self::ByCall,
            "cleared" => Self::Cleared,
            "zero" => Self::Zero,
            "own_length" => Self::OwnLength,
            "last_twice" => Self::LastTwice,
            _ => match word.strip_prefix("shift=").and_then(|far| far.parse().ok()) {
                Some(far) => Self::Shift(far),
                None => bail!("no caller {word:?}: right, by_call, cleared, shift=N, zero, own_length or last_twice"),
            },
        })
    }

    /// Is the last token of the call before fed again in front of this call?
    pub fn repeats(self, calls: usize) -> bool {
        self == Self::LastTwice && calls == 1
    }

    /// The `index_pos` that a call of `count` tokens is made with, where `index_pos` stands now.
    pub fn position(self, index_pos: usize, count: usize) -> usize {
        match self {
            Self::Shift(far) if index_pos > 0 => (index_pos as i64 + far).max(0) as usize,
            Self::Zero => 0,
            Self::OwnLength if index_pos > 0 && count > 1 => count,
            _ => index_pos,
        }
    }

    /// How far a call of `count` tokens moves `index_pos`.
    pub fn advance(self, count: usize) -> usize {
        if self == Self::ByCall {
            1
        } else {
            count
        }
    }
}

/// What the caller does to begin anew.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reset {
    /// A new cache.
    New,
    /// `clear_kv_cache`, for the models that keep the cache inside.
    Clear,
    /// Only position 0: the cache still holds what it held.
    Zero,
}

impl Reset {
    pub fn parse(word: &str) -> Result<Self> {
        Ok(match word {
            "new" => Self::New,
            "clear" => Self::Clear,
            "zero" => Self::Zero,
            _ => bail!("no reset {word:?}: new, clear or zero"),
        })
    }
}
