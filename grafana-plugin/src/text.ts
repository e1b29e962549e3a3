/** The most characters of a name that a menu or a pill shows. Kubernetes' own names have at most 253. */
const MAX_SHOWN = 260;

// Control characters, and those that turn or hide text: soft hyphen, zero widths, bidirectional marks and overrides, byte order mark.
const unseen = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** A name as it is shown: one line, in which every character can be seen, cut where it is too long. What is sent is the name itself. */
export function shown(name: string): string {
  const characters = [...name.slice(0, 2 * MAX_SHOWN + 2)];
  const cut = characters.length > MAX_SHOWN ? characters.slice(0, MAX_SHOWN).join('') + '…' : name;
  return cut.replace(unseen, (c) => (c === '\n' ? '⏎' : `‹U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}›`));
}

/** What an error says. */
export function messageOf(error: unknown): string {
  const data = (error as { data?: { message?: unknown; error?: unknown } } | null)?.data;
  for (const text of [data?.message, data?.error, (error as Error | null)?.message, (error as { statusText?: unknown } | null)?.statusText]) {
    if (typeof text === 'string' && text !== '') {
      return text;
    }
  }
  return String(error);
}
