// Thousands of workloads on 1,000 nodes of a real server: soon there, smooth, repainted where something changed, and no larger
// after a while.
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { CDPSession, Page } from '@playwright/test';
import { test as base, expect, signIn } from './berth.ts';
import { Crowd, NODES, numberOf, START_MAX_MS, TEAMS } from './crowd.ts';

const DIST = join(import.meta.dirname, '../dist');
/** How many workloads there are; `make soak` makes them 10,000. */
const WORKLOADS = Number(process.env.BERTH_UI_CROWD ?? '2000');
/** How long updates go on; `make soak` makes it half an hour. */
const UPDATES_SECS = Number(process.env.BERTH_UI_SOAK_SECS ?? '20');

const test = base.extend<object, { crowd: Crowd }>({
  crowd: [
    // biome-ignore lint/correctness/noEmptyPattern: the form that the library asks for.
    async ({}, use) => {
      const crowd = new Crowd(WORKLOADS);
      try {
        await crowd.begin();
        await use(crowd);
      } finally {
        await crowd.remove();
      }
    },
    { scope: 'worker', timeout: 2 * START_MAX_MS },
  ],
});

// One after the other: they share the crowd.
test.describe.configure({ mode: 'default' });

test('the first load has less than 250 kB of JavaScript, and no terminal', () => {
  const page = readFileSync(join(DIST, 'index.html'), 'utf8');
  const names = [...page.matchAll(/(?:src|href)="(\/[^"]+\.js)"/g)].map(([, name]) => name!);
  const size = names.reduce((all, name) => all + statSync(join(DIST, `${name}.gz`)).size, 0);
  console.log(`first load: ${names.length} scripts, ${(size / 1000).toFixed(1)} kB compressed`);
  expect(names.length).toBeGreaterThan(0);
  expect(size).toBeLessThan(250_000);
  expect(names.some(name => readFileSync(join(DIST, name), 'utf8').includes('xterm-rows'))).toBe(false);
});

const many = (count: number, what: string) => `${count.toLocaleString('en')} ${what}`;

/** Opens a page as whoever may do everything, and waits until all there is was listed. */
async function open(page: Page, crowd: Crowd, path: string) {
  await signIn(page, crowd.address, crowd.token);
  await page.goto(crowd.address + path);
  await expect(page.getByText('Live', { exact: true })).toBeVisible();
  const link = page.getByRole('navigation').getByRole('link', { name: /^Workloads/ });
  await expect(link).toContainText(String(WORKLOADS));
}

test('something useful is painted within 1.5 s', async ({ page, crowd }) => {
  await signIn(page, crowd.address, crowd.token);
  const session = await page.context().newCDPSession(page);
  // By the clock, and by the time that the page itself takes: a busy machine delays the former only.
  const first = async () => {
    let clock = 0;
    const entries = await trace(session, async () => {
      await page.goto(`${crowd.address}/`);
      await page.locator('.tile-number').first().waitFor();
      clock = await page.evaluate(() => performance.now());
    });
    return { clock, own: tasks(entries).reduce((all, ms) => all + ms, 0) };
  };
  const times = [await first(), await first(), await first()].sort((a, b) => a.own - b.own);
  const said = times.map(({ clock, own }) => `${Math.round(clock)} ms, ${Math.round(own)} its own`);
  console.log(`first useful paint with ${WORKLOADS} workloads: ${said.join('; ')}`);
  expect(times[1]!.own).toBeLessThan(1500);
});

interface Scrolled {
  /** The times between frames. */
  gaps: number[];
  /** What came into view, in the order in which it was built. */
  built: string[];
  /** What came and was changed again at once, while nothing happened to it. */
  passed: number;
}

/** Scrolls through a region for some seconds. */
async function scroll(page: Page, selector: string, item: string): Promise<Scrolled> {
  return page.locator(selector).evaluate(
    (frame, item) =>
      new Promise<Scrolled>(resolve => {
        const gaps: number[] = [];
        const built: string[] = [];
        const watcher = new MutationObserver(records => {
          for (const node of records.flatMap(record => [...record.addedNodes]))
            if (node instanceof Element && node.matches(item))
              built.push(node.querySelector('a')!.textContent!);
        });
        watcher.observe(frame, { subtree: true, childList: true });
        const from = frame.scrollTop;
        let last = performance.now();
        let count = 0;
        const step = (now: number) => {
          gaps.push(now - last);
          last = now;
          count += 1;
          frame.scrollTop += 160;
          if (count < 240) requestAnimationFrame(step);
          else resolve({ gaps: gaps.slice(5), built, passed: frame.scrollTop - from });
        };
        requestAnimationFrame(step);
      }),
    item,
  );
}

/** Processor time that the page has used, on all of its threads: what it decides as well as what it draws. */
async function used(session: CDPSession): Promise<number> {
  const { processInfo } = await session.send('SystemInfo.getProcessInfo');
  return processInfo.filter(one => one.type === 'renderer').reduce((all, one) => all + one.cpuTime, 0);
}

test('lists scroll without stutter while updates arrive', async ({ page, crowd, browser }) => {
  await open(page, crowd, '/workloads');
  const session = await page.context().newCDPSession(page);
  const whole = await browser.newBrowserCDPSession();
  const scrolled = async (name: string, selector: string, item: string, height: number) => {
    let found: Scrolled | undefined;
    const before = await used(whole);
    const entries = await trace(session, async () => {
      found = await scroll(page, selector, item);
    });
    const cost = ((await used(whole)) - before) * 1000;
    const { gaps, built, passed } = found!;
    const sorted = [...gaps].sort((a, b) => a - b);
    const longest = Math.max(...tasks(entries));
    console.log(
      `${name}: ${gaps.length} frames, median ${sorted[gaps.length >> 1]!.toFixed(1)} ms, worst ${sorted.at(-1)!.toFixed(1)} ms, ${gaps.filter(gap => gap > 50).length} over 50 ms; ${built.length} built over ${Math.round(passed)} px, ${(cost / gaps.length).toFixed(1)} ms of processor for each frame, the longest task ${longest.toFixed(1)} ms`,
    );
    // By counts and by processor time: how late a frame comes, others on this machine decide too.
    expect(built.length, 'each is built when it comes into view, and once').toBe(new Set(built).size);
    expect(built.length).toBeLessThanOrEqual(passed / height + 20);
    expect(longest, 'no task keeps a frame').toBeLessThan(50);
    return cost;
  };
  const reports = updates(crowd);
  try {
    const rows = await scrolled('workloads', '.table-frame', 'tr:not(.gap)', 34);
    await page.goto(`${crowd.address}/nodes?view=cards`);
    await expect(page.getByText(many(NODES, 'nodes'))).toBeVisible();
    const cards = await scrolled('nodes', '.node-frame', '.node-card', 100);
    expect(cards, 'a screen of cards is drawn about as easily as a screen of rows').toBeLessThan(rows * 1.1);
  } finally {
    await reports.end();
  }
});

/** The first workloads report in the test of repaints only: a report is streamed up to ten seconds later. */
const QUIET = TEAMS + 40;

/** Those that run report in turn, a hundred each second, and in each second a GPU changes hands. */
function updates(crowd: Crowd) {
  let wanted = true;
  const running = Array.from({ length: crowd.running }, (_, index) => index + 1);
  const stay = running.filter(id => id > QUIET && crowd.stays(id));
  expect(stay.length, 'enough of them report').toBeGreaterThan(50);
  const work = async () => {
    for (let beat = 0; wanted; beat += 1) {
      const next = new Promise(resolve => setTimeout(resolve, 10));
      await crowd.progress(stay[beat % stay.length]!, Math.floor(beat / stay.length) % 100);
      if (beat % 100 === 99) await crowd.swap(Math.floor(beat / 100) % TEAMS);
      await next;
    }
  };
  const ended = work();
  return {
    end: () => {
      wanted = false;
      return ended;
    },
  };
}

interface Painted {
  /** Elements whose style was looked at again. */
  styled: number;
  /** Boxes that were laid out again, and all there are. */
  laidOut: number;
  boxes: number;
  /** Boxes that the largest single layout concerned. */
  largest: number;
}

interface Entry {
  name: string;
  tid: number;
  /** How long it kept the processor, in microseconds. */
  tdur?: number;
  args: {
    name?: string;
    elementCount?: number;
    beginData?: { dirtyObjects?: number; totalObjects?: number };
  };
}

/** What the browser did between two moments, by its own account. */
async function trace(session: CDPSession, work: () => Promise<void>): Promise<Entry[]> {
  const entries: Entry[] = [];
  const take = ({ value }: { value: object[] }) => entries.push(...(value as Entry[]));
  session.on('Tracing.dataCollected', take);
  await session.send('Tracing.start', {
    transferMode: 'ReportEvents',
    traceConfig: {
      includedCategories: ['devtools.timeline', 'disabled-by-default-devtools.timeline', '__metadata'],
    },
  });
  await work();
  const complete = new Promise<void>(resolve => session.once('Tracing.tracingComplete', () => resolve()));
  await session.send('Tracing.end');
  await complete;
  session.off('Tracing.dataCollected', take);
  return entries;
}

/** How long each task of the page itself took, in milliseconds. */
function tasks(entries: Entry[]): number[] {
  const main = new Set(
    entries
      .filter(entry => entry.name === 'thread_name' && entry.args.name === 'CrRendererMain')
      .map(entry => entry.tid),
  );
  const own = entries.filter(entry => entry.name === 'RunTask' && main.has(entry.tid));
  expect(own.length, 'the trace has the tasks of the page').toBeGreaterThan(0);
  return own.map(entry => (entry.tdur ?? 0) / 1000);
}

function painted(entries: Entry[]): Painted {
  const sum = (of: (entry: Entry) => number | undefined) =>
    entries.reduce((all, entry) => all + (of(entry) ?? 0), 0);
  return {
    styled: sum(entry => (entry.name === 'UpdateLayoutTree' ? entry.args.elementCount : 0)),
    laidOut: sum(entry => entry.args.beginData?.dirtyObjects),
    boxes: Math.max(0, ...entries.map(entry => entry.args.beginData?.totalObjects ?? 0)),
    largest: Math.max(0, ...entries.map(entry => entry.args.beginData?.dirtyObjects ?? 0)),
  };
}

/** Notes what changes in the page from now on: the names of rows or cards, and what else is. */
async function note(page: Page) {
  await page.evaluate(() => {
    const noted: string[] = [];
    new MutationObserver(records => {
      for (const { target } of records) {
        const element = target instanceof Element ? target : target.parentElement;
        // Times go on by themselves each second.
        if (element?.closest('time') || element?.matches('td > span[title^="since"]')) continue;
        const item = element?.closest('tr, .node-card')?.querySelector('a')?.textContent;
        noted.push(item ?? `${element?.tagName.toLowerCase()}.${element?.className}`);
      }
    }).observe(document.querySelector('.page')!, {
      subtree: true,
      childList: true,
      characterData: true,
      attributes: true,
    });
    (window as unknown as { noted: string[] }).noted = noted;
  });
  return () => page.evaluate(() => (window as unknown as { noted: string[] }).noted);
}

test('an update of one workload repaints what changed, and nothing else', async ({ page, crowd }) => {
  await open(page, crowd, '/workloads?show=running&sort=name');
  const ids = Array.from({ length: 10 }, (_, index) => TEAMS + index + 1);
  const row = (id: number) => page.getByRole('row', { name: new RegExp(`(^| )train-${id} `) });
  await page.locator('.table-frame').evaluate(frame => {
    frame.scrollTop = 34 * 38;
  });
  await expect(row(ids.at(-1)!)).toBeVisible();
  const noted = await note(page);
  const session = await page.context().newCDPSession(page);
  // Long enough for a tick of the clocks in the rows, which go on each second by themselves.
  const idle = painted(await trace(session, () => page.waitForTimeout(2100)));
  const began = performance.now();
  const busy = painted(
    await trace(session, async () => {
      for (const id of ids) {
        // A report is told to everybody when the last one was ten seconds ago.
        await expect(async () => {
          await crowd.progress(id, id);
          await expect(row(id)).toContainText(`${id} %`, { timeout: 1000 });
        }).toPass();
      }
    }),
  );
  const ticks = Math.ceil((performance.now() - began) / 1000) + 1;
  const laidOut = Math.max(0, busy.laidOut - ticks * idle.largest);
  const changed = await noted();
  console.log(
    `ten updates: styles of ${busy.styled} elements, ${busy.laidOut} of ${busy.boxes} boxes laid out again (${ticks} ticks of clocks took ${idle.largest} each at most); ${changed.length} changes, in ${[...new Set(changed)].join(', ')}`,
  );
  expect([...new Set(changed)]).toEqual(ids.map(id => `train-${id}`));
  expect(laidOut / 10).toBeLessThan(busy.boxes / 4);
});

test('a GPU that changes hands repaints the cards of its nodes, and no other', async ({ page, crowd }) => {
  await open(page, crowd, '/nodes?view=cards');
  const holders = page.locator('.device:first-child a');
  await expect(holders.first()).toBeVisible();
  const numbers = (await holders.allTextContents()).map(numberOf);
  const number = numbers.find(number => !crowd.stays(number));
  expect(number, `one of ${numbers} can leave`).toBeDefined();
  const shown = await page.getByRole('article').evaluateAll(all => all.map(card => card.ariaLabel!));
  const noted = await note(page);
  const { left, came } = await crowd.swap(number! % TEAMS);
  const [from, to] = [left, came].map(workload => workload.tasks[0]!.node) as [string, string];
  if (shown.includes(to)) await expect(page.getByRole('link', { name: came.name })).toHaveCount(8);
  await expect(page.getByRole('link', { name: left.name, exact: true })).toHaveCount(0);
  const changed = new Set(await noted());
  console.log(`${left.name} left ${from}, ${came.name} came to ${to}; changed: ${[...changed].join(', ')}`);
  expect([...changed].sort()).toEqual(shown.filter(name => name === from || name === to).sort());
});

test(`memory is stable over ${UPDATES_SECS} s of updates`, async ({ page, crowd }) => {
  test.setTimeout((UPDATES_SECS + 120) * 1000);
  await open(page, crowd, '/workloads');
  const session = await page.context().newCDPSession(page);
  const heap = async () => {
    await session.send('HeapProfiler.collectGarbage');
    const { usedSize } = await session.send('Runtime.getHeapUsage');
    return usedSize / 2 ** 20;
  };
  const reports = updates(crowd);
  const sizes: number[] = [];
  try {
    const steps = 10;
    // What is known after the first moments is what it has to live with.
    await page.waitForTimeout((UPDATES_SECS * 1000) / steps);
    for (let step = 0; step < steps; step += 1) {
      sizes.push(await heap());
      console.log(
        `after ${Math.round(((step + 1) * UPDATES_SECS) / steps)} s: ${sizes.at(-1)!.toFixed(1)} MiB`,
      );
      if (step + 1 < steps) await page.waitForTimeout((UPDATES_SECS * 1000) / steps);
    }
  } finally {
    await reports.end();
  }
  const first = Math.min(...sizes.slice(0, 3));
  const last = Math.min(...sizes.slice(-3));
  expect(last).toBeLessThan(first * 1.1 + 4);
});
