// How one thing is typed into a field, read from it, and said by a command.
import { quoted, seconds, split, time } from './command.ts';

/** Says what should have been typed. */
export class Wrong extends Error {}

export type Control = 'line' | 'number' | 'lines' | 'check' | 'choice';

/** A way to write something down. Empty text is nothing, and is never read. */
export interface Shape<T> {
  control: Control;
  read(text: string): T;
  write(value: T): string;
  /** How a command says it. */
  words(flag: string, value: T): string[];
  /** What nothing means for something that was set before; it is unset when absent. */
  off?: { value: T; words(flag: string): string[] };
}

function one<T>(control: Control, read: (text: string) => T, write: (value: T) => string): Shape<T> {
  return { control, read, write, words: (flag, value) => [flag, quoted(write(value))] };
}

/** What stands between several: names may have spaces in them, words may not. */
const SEVERAL = {
  words: { control: 'line', apart: /[\s,]+/, between: ' ' },
  names: { control: 'line', apart: /,/, between: ', ' },
  lines: { control: 'lines', apart: /\n/, between: '\n' },
} as const;

function several<T>(
  how: keyof typeof SEVERAL,
  read: (texts: string[]) => T,
  texts: (value: T) => string[],
): Shape<T> {
  const { control, apart, between } = SEVERAL[how];
  return {
    control,
    read: text => read(text.split(apart).flatMap(one => one.trim() || [])),
    write: value => texts(value).join(between),
    words: (flag, value) => texts(value).flatMap(text => [flag, quoted(text)]),
  };
}

function number(text: string, least: number, what: string): number {
  const value = Number(text);
  if (!Number.isFinite(value)) throw new Wrong(what);
  if (value < least) throw new Wrong(`Must be ${least} or more`);
  return value;
}

export const text = one<string>('line', String, String);
export const amount = one('number', text => number(text, 0, 'A number, such as 2'), String);
export const whole = (least: number) =>
  one(
    // Keys for numbers have no minus on some phones.
    least < 0 ? 'line' : 'number',
    text => {
      const value = number(text, least, 'A whole number, such as 2');
      if (!Number.isInteger(value)) throw new Wrong('A whole number, such as 2');
      return value;
    },
    String,
  );
export const span = one(
  'line',
  text => {
    const secs = seconds(text);
    if (secs === null) throw new Wrong('A time such as 30m, 12h or 7d');
    return secs;
  },
  time,
);

const UNITS = ['Ki', 'Mi', 'Gi', 'Ti'];

/** Bytes, as people write them. */
export const bytes = one(
  'line',
  text => {
    const found = /^(\d+(?:\.\d+)?)\s*(?:([KMGT])(i?))?B?$/i.exec(text);
    if (!found) throw new Wrong('An amount such as 16Gi');
    const step = found[3] ? 1024 : 1000;
    const size = found[2] ? step ** ('KMGT'.indexOf(found[2].toUpperCase()) + 1) : 1;
    return Math.round(Number(found[1]) * size);
  },
  value => {
    const at = UNITS.findLastIndex((_, index) => value > 0 && value % 1024 ** (index + 1) === 0);
    return at < 0 ? String(value) : `${value / 1024 ** (at + 1)}${UNITS[at]}`;
  },
);
export const choice = <T extends string>() => one<T>('choice', text => text as T, String);
export const check: Shape<boolean> = {
  control: 'check',
  read: () => true,
  write: value => (value ? 'yes' : ''),
  words: (flag, value) => (value ? [flag] : []),
  off: { value: false, words: flag => [`${flag}=false`] },
};
/** What a shell would split. */
export const shell: Shape<string[]> = {
  control: 'line',
  read: split,
  write: value => value.map(quoted).join(' '),
  words: (flag, value) => value.map(word => `${flag}=${quoted(word)}`),
};
export const names = several<string[]>(
  'names',
  texts => texts,
  value => value,
);
export const ports = several<number[]>(
  'words',
  texts =>
    texts.map(text => {
      const port = Number(text);
      if (!Number.isInteger(port) || port < 1 || port > 65_535)
        throw new Wrong('Ports are numbers up to 65535');
      return port;
    }),
  value => value.map(String),
);

function pair(text: string, what: string, mayBeEmpty = false): [string, string] {
  const at = text.indexOf('=');
  if (at < 1 || (at === text.length - 1 && !mayBeEmpty)) throw new Wrong(`Write ${what}; “${text}” is none`);
  return [text.slice(0, at), text.slice(at + 1)];
}

/** A value that is no plain line stands in quotes, as JSON has them. */
const plain = (value: string) => value === value.trim() && !value.includes('\n') && !value.startsWith('"');

function unquoted(value: string): string {
  if (!value.startsWith('"')) return value;
  try {
    return String(JSON.parse(value));
  } catch {
    throw new Wrong(`What begins with a quote ends with one, as "two\\nlines"; ${value} does not`);
  }
}

/** One value for a name. */
export const pairs = (what: string): Shape<Record<string, string>> => ({
  ...several<Record<string, string>>(
    'lines',
    texts =>
      Object.fromEntries(
        texts.map(text => {
          const [name, value] = pair(text, `${what}, one in a line`, true);
          return [name, unquoted(value)];
        }),
      ),
    map =>
      Object.entries(map).map(([name, value]) => `${name}=${plain(value) ? value : JSON.stringify(value)}`),
  ),
  words: (flag, map) => Object.entries(map).flatMap(([name, value]) => [flag, quoted(`${name}=${value}`)]),
});
/** An amount for a name. */
export const amounts = (what: string) =>
  several<Record<string, number>>(
    'names',
    texts =>
      Object.fromEntries(
        texts.map(text => {
          const [name, value] = pair(text, what);
          return [name, amount.read(value)];
        }),
      ),
    value => Object.entries(value).map(([name, value]) => `${name}=${value}`),
  );
/** Values that will do, for each label. */
export const labels = several<Record<string, string[]>>(
  'words',
  texts => {
    const map: Record<string, string[]> = {};
    for (const text of texts) {
      const [label, value] = pair(text, 'LABEL=VALUE');
      map[label] = [...(map[label] ?? []), value];
    }
    return map;
  },
  value => Object.entries(value).flatMap(([label, values]) => values.map(one => `${label}=${one}`)),
);

interface Mounted {
  target: string;
  read_only?: boolean;
}

function mounted<T extends Mounted>(make: (what: string, at: Mounted) => T, what: (value: T) => string) {
  return several<T[]>(
    'lines',
    texts =>
      texts.map(text => {
        const [source, target, how, ...more] = text.split(':');
        const known = how === undefined || how === 'ro' || how === 'rw';
        if (!source || !target || !known || more.length > 0)
          throw new Wrong(`Write WHAT:PATH or WHAT:PATH:ro, one in a line; “${text}” is neither`);
        return make(source, { target, read_only: how === 'ro' });
      }),
    value => value.map(one => `${what(one)}:${one.target}${one.read_only ? ':ro' : ''}`),
  );
}

export const folders = mounted(
  (source, at) => ({ source, ...at }),
  one => one.source,
);
export const volumes = mounted(
  (name, at) => ({ name, ...at }),
  one => one.name,
);
