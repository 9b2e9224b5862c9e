// A shell beside a worker, over a socket. docs/api.md describes what is said.
import { openSocket, withQuery, workloadPath } from './client.ts';

const PROTOCOL = 'berth.shell.v1';
/** The first byte of a message of bytes: what is typed. */
const TYPED = 0;

export interface Size {
  columns: number;
  rows: number;
}

/** How it ended: by itself, from outside, before it began, or because nobody answers any more. */
export type End =
  | { how: 'exit'; code: number | null; signal: number | null }
  | { how: 'ended' | 'refused'; detail: string }
  | { how: 'lost' };

export interface Hears {
  started: () => void;
  printed: (bytes: Uint8Array) => void;
  notice: (detail: string) => void;
  ended: (end: End) => void;
}

type Told =
  | { type: 'started' }
  | { type: 'refused' | 'notice' | 'ended'; detail: string }
  | { type: 'exit'; code?: number; signal?: number };

export class Shell {
  private readonly socket: WebSocket;
  private readonly encoder = new TextEncoder();
  private runs = false;
  private over = false;
  private size: Size;

  constructor(
    workload: { project: string; name: string },
    rank: number,
    size: Size,
    private readonly hears: Hears,
  ) {
    this.size = size;
    this.socket = openSocket(withQuery(workloadPath(workload, '/exec'), { rank }), PROTOCOL);
    this.socket.onopen = () => {
      const environment = { TERM: 'xterm-256color', COLORTERM: 'truecolor' };
      this.say({ type: 'start', environment, terminal: this.size });
    };
    this.socket.onmessage = ({ data }) => this.hear(data);
    this.socket.onclose = () => this.end({ how: 'lost' });
  }

  type(text: string) {
    const bytes = this.encoder.encode(text);
    const message = new Uint8Array(bytes.length + 1);
    message[0] = TYPED;
    message.set(bytes, 1);
    if (this.runs) this.socket.send(message);
  }

  resize(size: Size) {
    if (size.columns === this.size.columns && size.rows === this.size.rows) return;
    this.size = size;
    if (this.runs) this.say({ type: 'resize', ...size });
  }

  /** Hangs up; nothing more is heard. */
  close() {
    this.over = true;
    this.runs = false;
    this.socket.close();
  }

  private say(message: object) {
    this.socket.send(JSON.stringify(message));
  }

  private hear(data: string | ArrayBuffer) {
    if (this.over) return;
    if (typeof data !== 'string') {
      // Which of the two streams it is does not matter on a terminal.
      this.hears.printed(new Uint8Array(data, 1));
      return;
    }
    const told = JSON.parse(data) as Told;
    if (told.type === 'started') {
      this.runs = true;
      // It may have another size since it was asked for.
      this.say({ type: 'resize', ...this.size });
      this.hears.started();
    } else if (told.type === 'notice') this.hears.notice(told.detail);
    else if (told.type === 'exit')
      this.end({ how: 'exit', code: told.code ?? null, signal: told.signal ?? null });
    else this.end({ how: told.type, detail: told.detail });
  }

  private end(end: End) {
    if (this.over) return;
    this.over = true;
    this.runs = false;
    this.hears.ended(end);
  }
}
