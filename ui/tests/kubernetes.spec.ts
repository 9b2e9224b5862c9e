// The same pages in front of a cluster: a real control plane with two simulated DGX-1.
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Page } from '@playwright/test';
import { BERTH, expect, signIn, test } from './berth.ts';

const CLUSTER = process.env.BERTH_CLUSTER_BIN ?? join(dirname(BERTH), 'examples/cluster');

interface Told {
  address: string;
  token: string;
  /** An image that a real node has. */
  image: string | null;
  missing?: string;
}

async function start(words: string[]): Promise<[ChildProcess, Told]> {
  const process = spawn(CLUSTER, words, { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: process.stdout! });
  for await (const line of lines) return [process, JSON.parse(line) as Told];
  throw new Error('the cluster ended before it said where it is');
}

async function end(process: ChildProcess) {
  const ended = new Promise(resolve => process.once('exit', resolve));
  process.stdin?.end();
  if (process.exitCode === null) await ended;
}

/** Does something with the pages of a cluster, which ends with it. */
async function onCluster(page: Page, words: string[], act: (told: Told) => Promise<void>) {
  test.setTimeout(300_000);
  if (!existsSync(CLUSTER)) {
    console.log(`NOT TESTED: the dashboard on Kubernetes, because ${CLUSTER} is not built`);
    test.skip();
  }
  const [process, told] = await start(words);
  try {
    if (told.missing !== undefined) {
      console.log(`NOT TESTED: the dashboard on Kubernetes: ${told.missing}`);
      test.skip();
    }
    await signIn(page, told.address, told.token);
    await act(told);
  } finally {
    await end(process);
  }
}

test('the same pages show Berth on Kubernetes', async ({ page }) => {
  await onCluster(page, [], async () => {
    await expect(page.getByRole('link', { name: /^GPUs 16/ })).toBeVisible();
    await expect(page.getByRole('link', { name: /^Nodes 2 \/ 2/ })).toBeVisible();

    await page.getByRole('link', { name: 'Projects', exact: true }).click();
    for (const [team, quota] of [
      ['team-a', 8],
      ['team-b', 8],
    ] as const) {
      await page.getByRole('button', { name: 'New project' }).click();
      await page.getByRole('dialog').getByLabel('Name').fill(team);
      await page.getByRole('dialog').getByLabel('Quota', { exact: true }).fill(String(quota));
      await page.getByRole('button', { name: 'Create', exact: true }).click();
      await expect(page.getByRole('dialog')).toBeHidden();
    }
    await expect(page.getByText('16 of 16 GPUs promised')).toBeVisible();

    await page.getByRole('link', { name: 'Workloads', exact: true }).click();
    const submit = async (team: string, name: string, gpus: number) => {
      await page.getByRole('button', { name: 'Submit', exact: true }).click();
      const form = page.getByRole('dialog');
      await form.getByLabel('Name', { exact: true }).fill(name);
      await form.getByLabel('Project', { exact: true }).selectOption(team);
      await form.getByLabel('GPUs per worker').fill(String(gpus));
      await form.getByRole('button', { name: 'Submit', exact: true }).click();
      const drawer = page.getByRole('complementary', { name: `Workload ${name}` });
      await drawer.getByRole('button', { name: 'Close' }).click();
    };
    await submit('team-a', 'own', 8);
    await submit('team-a', 'borrows', 8);
    for (const name of ['own', 'borrows'])
      await expect(page.getByRole('row', { name: new RegExp(`(^| )${name} `) })).toContainText('Running');

    // The owner comes back, and the page sees the preemption happen.
    await submit('team-b', 'owner', 8);
    await expect(page.getByRole('row', { name: /(^| )owner / })).toContainText('Running', {
      timeout: 60_000,
    });
    await page.getByRole('link', { name: 'Overview', exact: true }).click();
    await expect(page.getByRole('img', { name: 'team-a: 8 of 8 GPUs' })).toBeVisible();
    await expect(page.getByRole('img', { name: 'team-b: 8 of 8 GPUs' })).toBeVisible();
    const pending = page.getByRole('region', { name: 'Pending workloads' }).getByRole('row').nth(1);
    const name = (await pending.getByRole('link').first().textContent()) ?? '';
    await page
      .getByRole('region', { name: 'Pending workloads' })
      .getByRole('link', { name, exact: true })
      .click();
    const drawer = page.getByRole('complementary', { name: `Workload ${name}` });
    await expect(drawer.getByRole('region', { name: 'Why it waits' })).toContainText('no-capacity');
    await drawer.getByRole('tab', { name: 'Events' }).click();
    await expect(drawer).toContainText('owner');
    await page.keyboard.press('Escape');
    await expect(drawer).toBeHidden();

    await page.getByRole('link', { name: 'Nodes', exact: true }).click();
    await expect(page.getByRole('article')).toHaveCount(2);
    await expect(page.getByRole('link', { name: 'owner' }).first()).toBeVisible();

    await page
      .getByRole('navigation')
      .getByRole('link', { name: /^Workloads/ })
      .click();
    await page.getByRole('link', { name: 'owner', exact: true }).click();
    const owner = page.getByRole('complementary', { name: 'Workload owner' });
    // A simulated node runs nothing: it prints nothing, and nobody can enter.
    await owner.getByRole('tab', { name: 'Logs' }).click();
    await expect(owner.getByText('No output yet')).toBeVisible();
    await owner.getByRole('tab', { name: 'Terminal' }).click();
    await expect(owner.getByRole('status')).toContainText('as a simulated node never does');
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await expect(page.getByRole('dialog')).toBeHidden();
    await page.getByRole('complementary').getByRole('button', { name: 'Close' }).click();
    await expect(page.getByRole('row', { name: new RegExp(`(^| )${name} `) })).toContainText('Running', {
      timeout: 60_000,
    });
    await page.getByRole('link', { name: 'Settings', exact: true }).click();
    await expect(page.getByText('on Kubernetes')).toBeVisible();
  });
});

test('a log and a terminal come from a Pod on a real node', async ({ page }) => {
  await onCluster(page, ['--real'], async ({ image }) => {
    await page.getByRole('link', { name: 'Projects', exact: true }).click();
    await page.getByRole('button', { name: 'New project' }).click();
    const form = page.getByRole('dialog');
    await form.getByLabel('Name', { exact: true }).fill('team-a');
    await form.getByLabel('Quota', { exact: true }).fill('2');
    await form.getByRole('button', { name: 'Create' }).click();
    await expect(form).toBeHidden();

    await page.getByRole('link', { name: 'Workloads', exact: true }).click();
    await page.getByRole('button', { name: 'Submit', exact: true }).click();
    await form.getByLabel('Name', { exact: true }).fill('work');
    await form.getByLabel('Image', { exact: true }).fill(image!);
    await form
      .getByLabel('Command', { exact: true })
      .fill(`sh -c 'echo epoch 2/4 loss: 0.5; trap "exit 0" TERM; sleep 1000 & wait'`);
    await form.getByText('Process', { exact: true }).click();
    await form.getByLabel('Never pull the image').check();
    await form.getByRole('button', { name: 'Submit', exact: true }).click();
    const drawer = page.getByRole('complementary', { name: 'Workload work' });
    await expect(drawer).toContainText('Running', { timeout: 60_000 });

    await drawer.getByRole('tab', { name: 'Logs' }).click();
    await expect(drawer.getByRole('log')).toHaveText('epoch 2/4 loss: 0.5');
    await drawer.getByRole('tab', { name: 'Metrics' }).click();
    await expect(drawer.locator('.card', { hasText: 'loss' }).locator('b')).toHaveText('0.5');
    await drawer.getByRole('tab', { name: 'Terminal' }).click();
    await expect(drawer.getByText(/^Connected to /)).toBeVisible();
    await page.keyboard.type('echo $BERTH_WORKLOAD has $((7 * 6))\n');
    const screen = drawer.locator('.xterm-rows');
    await expect(screen).toContainText('work has 42');
    await page.keyboard.type('exit 3\n');
    await expect(drawer.getByText(/ended with code 3/)).toBeVisible();

    await drawer.getByRole('button', { name: 'Delete', exact: true }).click();
    await form.getByRole('button', { name: 'Delete' }).click();
    await expect(drawer).toContainText(/Terminating|Deleted/);
  });
});
