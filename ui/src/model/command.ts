// Words and amounts as a command line has them.

/** A word as a shell reads it. */
export function quoted(word: string): string {
  return /^[A-Za-z0-9_=+:,./@%-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** The words somebody typed, as a shell would split them. */
export function split(line: string): string[] {
  const words: string[] = [];
  let word = '';
  let open: string | null = null;
  let begun = false;
  for (let index = 0; index < line.length; index += 1) {
    const letter = line[index]!;
    if (letter === '\\' && open !== "'" && index + 1 < line.length) {
      index += 1;
      word += line[index];
      begun = true;
    } else if (open !== null) {
      if (letter === open) open = null;
      else word += letter;
    } else if (letter === '"' || letter === "'") {
      open = letter;
      begun = true;
    } else if (/\s/.test(letter)) {
      if (begun) words.push(word);
      word = '';
      begun = false;
    } else {
      word += letter;
      begun = true;
    }
  }
  if (begun) words.push(word);
  return words;
}

/** `90` as `90s`, `5400` as `90m`. */
export function time(secs: number): string {
  for (const [unit, size] of [
    ['d', 86_400],
    ['h', 3600],
    ['m', 60],
  ] as const) {
    if (secs >= size && secs % size === 0) return `${secs / size}${unit}`;
  }
  return `${secs}s`;
}

/** `90m` as seconds; null when it is no time. */
export function seconds(text: string): number | null {
  const found = /^\s*(\d+(?:\.\d+)?)\s*([smhd])\s*$/.exec(text);
  if (!found) return null;
  const size = { s: 1, m: 60, h: 3600, d: 86_400 }[found[2] as 's' | 'm' | 'h' | 'd'];
  return Math.round(Number(found[1]) * size);
}
