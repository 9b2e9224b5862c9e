// A terminal in the page. It is large, so whoever shows one loads it then.
import '@xterm/xterm/css/xterm.css';
import { FitAddon } from '@xterm/addon-fit';
import { type ITheme, Terminal as Xterm } from '@xterm/xterm';
import { useEffect, useRef } from 'react';
import { type End, Shell } from '../api/shell.ts';
import { bytes } from '../model/format.ts';
import { styleSpansByProperty, withSheets } from './terminal-style.ts';

/** What was printed and is not drawn yet. Beyond it only the end is drawn: that is what a person reads of a flood. */
const UNDRAWN_MAX = 4 << 20;
const END_BYTES = 256 << 10;
const LINES_KEPT = 5000;

styleSpansByProperty();

export interface TerminalProps {
  workload: { project: string; name: string };
  rank: number;
  label: string;
  /** Another number connects again, and one below zero hangs up; what is on the screen stays. */
  attempt: number;
  onStarted: () => void;
  onNotice: (detail: string) => void;
  onEnded: (end: End) => void;
  /** What is printed is read aloud. It takes several times as long, so it is asked for. */
  reads: boolean;
  /** Somebody wants to go elsewhere with the keyboard. */
  onLeave: () => void;
}

export default function Terminal(props: TerminalProps) {
  const frame = useRef<HTMLDivElement>(null);
  const terminal = useRef<Xterm | null>(null);
  const shell = useRef<Shell | null>(null);
  const told = useRef(props);
  told.current = props;

  useEffect(() => {
    const shown = frame.current;
    if (!shown) return;
    const made = new Xterm({
      allowProposedApi: false,
      cursorBlink: !window.matchMedia('(prefers-reduced-motion: reduce)').matches,
      fontFamily: "'JetBrains Mono', ui-monospace, monospace",
      fontSize: 13,
      minimumContrastRatio: 4.5,
      screenReaderMode: told.current.reads,
      scrollback: LINES_KEPT,
      theme: theme(shown),
    });
    const fit = new FitAddon();
    made.loadAddon(fit);
    withSheets(() => made.open(shown));
    made.textarea?.setAttribute('aria-label', told.current.label);
    made.attachCustomKeyEventHandler(event => isForShell(event, made, () => told.current.onLeave()));
    made.onData(text => shell.current?.type(text));
    made.onResize(({ cols, rows }) => shell.current?.resize({ columns: cols, rows }));
    const refit = () => {
      if (shown.clientWidth > 0 && shown.clientHeight > 0) fit.fit();
    };
    const watcher = new ResizeObserver(refit);
    watcher.observe(shown);
    // Letters are measured; those of the page's own font may come a moment later.
    void document.fonts.load("13px 'JetBrains Mono'").then(() => {
      if (terminal.current === made) refit();
    });
    const stop = onColours(() => {
      made.options.theme = theme(shown);
    });
    refit();
    made.focus();
    terminal.current = made;
    return () => {
      stop();
      watcher.disconnect();
      terminal.current = null;
      made.dispose();
    };
  }, []);

  useEffect(() => {
    if (terminal.current) terminal.current.options.screenReaderMode = props.reads;
  }, [props.reads]);

  const { project, name } = props.workload;
  useEffect(() => {
    const shown = terminal.current;
    if (!shown || props.attempt < 0) return;
    if (props.attempt > 1) shown.write('\r\n');
    const print = drawing(shown);
    const opened = new Shell(
      { project, name },
      props.rank,
      { columns: shown.cols, rows: shown.rows },
      {
        started: () => {
          told.current.onStarted();
          shown.focus();
        },
        printed: print,
        notice: detail => told.current.onNotice(detail),
        ended: end => told.current.onEnded(end),
      },
    );
    shell.current = opened;
    return () => {
      shell.current = null;
      opened.close();
    };
  }, [project, name, props.rank, props.attempt]);

  return <div className="terminal-frame" ref={frame} />;
}

/** Draws what is printed. Of what comes faster than it can be drawn, the end is drawn, and how much is missing is said. */
function drawing(shown: Xterm): (printed: Uint8Array) => void {
  let undrawn = 0;
  let left = 0;
  let last: Uint8Array[] = [];
  let lastBytes = 0;
  const draw = (printed: Uint8Array) => {
    undrawn += printed.length;
    shown.write(printed, () => {
      undrawn -= printed.length;
      if (undrawn === 0 && last.length > 0) catchUp();
    });
  };
  const catchUp = () => {
    if (left > 0) shown.write(`\x1b[0m\r\n[${bytes(left)} not shown]\r\n`);
    const rest = last;
    [left, last, lastBytes] = [0, [], 0];
    for (const printed of rest) draw(printed);
  };
  return printed => {
    if (undrawn <= UNDRAWN_MAX && last.length === 0) {
      draw(printed);
      return;
    }
    last.push(printed);
    lastBytes += printed.length;
    while (lastBytes - last[0]!.length >= END_BYTES) {
      const gone = last.shift()!;
      lastBytes -= gone.length;
      left += gone.length;
    }
  };
}

/** Whether the shell gets a key. Some are the page's: to copy, to paste, and to get out. */
function isForShell(event: KeyboardEvent, shown: Xterm, leave: () => void): boolean {
  if (event.type !== 'keydown' || !(event.ctrlKey || event.metaKey) || event.altKey) return true;
  if (event.code === 'KeyX' && event.shiftKey) {
    event.preventDefault();
    leave();
    return false;
  }
  if (event.code === 'KeyC' && (event.shiftKey || event.metaKey || shown.hasSelection())) {
    event.preventDefault();
    copy(shown);
    return false;
  }
  // The browser pastes, and the terminal is told what.
  return event.code !== 'KeyV';
}

function copy(shown: Xterm) {
  if (!shown.hasSelection()) return;
  const text = shown.getSelection();
  // Without a safe connection a browser has no clipboard for scripts, but lets them do what its own menu does.
  if (navigator.clipboard) void navigator.clipboard.writeText(text).catch(() => document.execCommand('copy'));
  else document.execCommand('copy');
  shown.clearSelection();
}

/** Tells of other colours, by the system or by choice. */
function onColours(tell: () => void): () => void {
  const system = window.matchMedia('(prefers-color-scheme: dark)');
  const chosen = new MutationObserver(tell);
  system.addEventListener('change', tell);
  chosen.observe(document.documentElement, { attributeFilter: ['data-theme'] });
  return () => {
    system.removeEventListener('change', tell);
    chosen.disconnect();
  };
}

function theme(shown: HTMLElement): ITheme {
  const { backgroundColor: background, color: foreground } = getComputedStyle(shown);
  return { background, foreground, cursor: foreground, cursorAccent: background, ...SELECTION };
}

const SELECTION: ITheme = {
  selectionBackground: 'rgba(90, 150, 240, 0.35)',
  scrollbarSliderBackground: 'rgba(128, 136, 150, 0.35)',
  scrollbarSliderHoverBackground: 'rgba(128, 136, 150, 0.6)',
  scrollbarSliderActiveBackground: 'rgba(128, 136, 150, 0.8)',
};
