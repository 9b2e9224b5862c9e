// A table of any length: only the rows that can be seen are there. Rows have one height, so where each stands is known.
import {
  type KeyboardEvent,
  memo,
  type ReactNode,
  useCallback,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from 'react';
import type { Cell } from '../model/csv.ts';
import { Icon } from './icon.tsx';

const ROW = 34;
/** Rows beyond what is seen, so that a quick scroll shows no gap. */
const SPARE = 8;

export interface Column<T> {
  id: string;
  title: string;
  /** In pixels; columns share what is left in proportion. */
  width: number;
  show: (row: T) => ReactNode;
  /** What it is sorted by, and what a file says. */
  value: (row: T) => Cell;
  align?: 'right';
  /** Is not shown unless somebody wants it. */
  extra?: boolean;
  /** Its title is read aloud only, and nothing is sorted by it. */
  silent?: boolean;
  /** Goes first when there is no room. */
  phone?: boolean;
  /** Long text takes several lines; in tables that show all rows. */
  wraps?: boolean;
  /** Stands in the heading instead of the title. */
  head?: ReactNode;
}

export interface Sort {
  by: string;
  down: boolean;
}

export function sorted<T>(rows: readonly T[], columns: Column<T>[], sort: Sort | null): readonly T[] {
  const column = columns.find(column => column.id === sort?.by);
  if (!column || !sort) return rows;
  const sign = sort.down ? -1 : 1;
  const keyed = rows.map((row, index) => ({ row, index, key: column.value(row) }));
  keyed.sort((a, b) => sign * compare(a.key, b.key) || a.index - b.index);
  return keyed.map(({ row }) => row);
}

/** Made once: to make it costs more than to use it thousands of times. */
const WORDS = new Intl.Collator('en', { numeric: true });

function compare(a: Cell, b: Cell) {
  // What has no value comes last, whichever way.
  if (a == null || a === '') return b == null || b === '' ? 0 : 1;
  if (b == null || b === '') return -1;
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return WORDS.compare(String(a), String(b));
}

export function Table<T>(props: {
  label: string;
  rows: readonly T[];
  columns: Column<T>[];
  keyOf: (row: T) => string | number;
  sort?: Sort | null;
  onSort?: (sort: Sort) => void;
  onOpen?: (row: T) => void;
  open?: string | number | null;
  empty: ReactNode;
  /** All rows at their full height, without a frame that scrolls. */
  whole?: boolean;
}) {
  const { rows, columns, keyOf, sort, onSort, onOpen } = props;
  const frame = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ first: 0, last: 60 });
  const look = useCallback(() => {
    const shown = frame.current;
    if (!shown || props.whole) return;
    const first = Math.max(0, Math.floor(shown.scrollTop / ROW) - SPARE);
    const last = Math.ceil((shown.scrollTop + shown.clientHeight) / ROW) + SPARE;
    setView(before => (before.first === first && before.last === last ? before : { first, last }));
  }, [props.whole]);
  useLayoutEffect(() => {
    look();
    const watcher = new ResizeObserver(look);
    if (frame.current) watcher.observe(frame.current);
    return () => watcher.disconnect();
  }, [look]);
  const first = props.whole ? 0 : Math.min(view.first, Math.max(0, rows.length - 1));
  const last = props.whole ? rows.length : Math.min(view.last, rows.length);
  const width = useMemo(() => columns.reduce((all, column) => all + column.width, 0), [columns]);
  const move = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    const row = (event.target as HTMLElement).closest('tr');
    if (step === 0 || !row || (event.target as HTMLElement).closest('input,select,textarea')) return;
    const next = step === 1 ? row.nextElementSibling : row.previousElementSibling;
    const target = next?.querySelector<HTMLElement>('a,button');
    if (!target) return;
    event.preventDefault();
    target.focus();
    next?.scrollIntoView({ block: 'nearest' });
  };
  if (rows.length === 0) return <div className="table-frame none">{props.empty}</div>;
  return (
    <div
      className={`table-frame ${props.whole ? 'whole' : ''}`}
      ref={frame}
      onScroll={look}
      onKeyDown={move}
      tabIndex={props.whole ? undefined : 0}
      role="region"
      aria-label={props.label}
    >
      <table aria-rowcount={rows.length + 1} style={{ ['--least' as string]: `${Math.min(width, 640)}px` }}>
        <colgroup>
          {columns.map(column => (
            <col
              key={column.id}
              className={column.phone === false ? 'no-phone' : ''}
              style={{ width: `${(column.width / width) * 100}%` }}
            />
          ))}
        </colgroup>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map(column => (
              <Heading key={column.id} column={column} sort={sort ?? null} onSort={onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <tr className="gap" aria-hidden="true" style={{ height: first * ROW }} />}
          {rows.slice(first, last).map((row, index) => (
            <Row
              key={keyOf(row)}
              row={row}
              columns={columns as Column<unknown>[]}
              index={first + index + 2}
              onOpen={onOpen as ((row: unknown) => void) | undefined}
              open={props.open !== undefined && props.open !== null && keyOf(row) === props.open}
            />
          ))}
          {last < rows.length && (
            <tr className="gap" aria-hidden="true" style={{ height: (rows.length - last) * ROW }} />
          )}
        </tbody>
      </table>
    </div>
  );
}

function Heading<T>({
  column,
  sort,
  onSort,
}: {
  column: Column<T>;
  sort: Sort | null;
  onSort?: (sort: Sort) => void;
}) {
  const isSorted = sort?.by === column.id;
  const order = isSorted ? (sort.down ? 'descending' : 'ascending') : undefined;
  const name = `${column.align ?? ''} ${column.phone === false ? 'no-phone' : ''}`;
  if (column.head) {
    return (
      <th scope="col" className={name}>
        {column.head}
      </th>
    );
  }
  if (!onSort || column.silent) {
    return (
      <th scope="col" className={name}>
        <span className={column.silent ? 'hidden-text' : undefined}>{column.title}</span>
      </th>
    );
  }
  return (
    <th scope="col" className={name} aria-sort={order}>
      <button type="button" onClick={() => onSort({ by: column.id, down: isSorted ? !sort.down : false })}>
        {column.title}
        {isSorted && <Icon name={sort.down ? 'down' : 'up'} size={12} />}
      </button>
    </th>
  );
}

interface RowProps {
  row: unknown;
  columns: Column<unknown>[];
  index: number;
  open: boolean;
  onOpen?: (row: unknown) => void;
}

/** Painted again only when its own row is another object. */
const Row = memo(function Row({ row, columns, index, open, onOpen }: RowProps) {
  return (
    <tr
      aria-rowindex={index}
      className={`${open ? 'open' : ''} ${onOpen ? 'opens' : ''}`}
      onClick={event => {
        if (!onOpen || (event.target as HTMLElement).closest('a,button,input,label')) return;
        if (window.getSelection()?.toString()) return;
        onOpen(row);
      }}
    >
      {columns.map(column => (
        <td
          key={column.id}
          className={`${column.align ?? ''} ${column.phone === false ? 'no-phone' : ''} ${column.wraps ? 'wraps' : ''}`}
        >
          {column.show(row)}
        </td>
      ))}
    </tr>
  );
});
