// What is behind the first look: how something came to be, one worker of several, one port of several, what lies further back.
import { readFileSync } from 'node:fs';
import type { Download, Locator, Page } from '@playwright/test';
import { type Berth, expect, test } from './berth.ts';

/** Saves by a button, and gives the lines of the file. */
async function saved(page: Page, button: Locator): Promise<string[]> {
  const [file] = await Promise.all([page.waitForEvent('download') as Promise<Download>, button.click()]);
  return readFileSync(await file.path(), 'utf8')
    .trim()
    .split('\r\n');
}

async function begin(berth: Berth, name: string, script: string, ...words: string[]) {
  await berth.run(
    'submit',
    name,
    '-p',
    'team-a',
    '-i',
    'bash',
    '--working-dir',
    '-',
    ...words,
    '--',
    'bash',
    '-c',
    script,
  );
  await berth.run('wait', name, '-p', 'team-a', '--for', 'running');
}

test('metrics show how they came to be, and so does their file', async ({ berth, signedIn: page }) => {
  // One report in ten seconds is kept.
  const script = `
    echo "epoch 1/4 loss: 0.9 accuracy: 0.5"
    until [ -e "$BERTH_CHECKPOINT_DIR/go" ]; do sleep 0.2; done
    sleep 10.5
    echo "epoch 2/4 loss: 0.4 accuracy: 0.75"
    sleep infinity`;
  await begin(berth, 'learns', script, '-g', '1');
  await page.getByRole('link', { name: 'learns', exact: true }).click();
  const drawer = page.getByRole('complementary', { name: 'Workload learns' });
  await drawer.getByRole('tab', { name: 'Metrics' }).click();
  const card = (name: string) => drawer.locator('.card', { hasText: name }).locator('b');
  await expect(card('loss')).toHaveText('0.9');
  await expect(drawer.getByRole('img')).toHaveCount(0);
  await berth.run('exec', 'learns', '-p', 'team-a', '--', 'bash', '-c', 'touch "$BERTH_CHECKPOINT_DIR/go"');
  await expect(card('loss')).toHaveText('0.4');
  await expect(card('epoch')).toHaveText('2 / 4');
  await expect(drawer.getByRole('img', { name: /^loss/ })).toBeVisible();

  // Whoever comes later sees the same.
  await page.reload();
  for (const name of ['done', 'epoch', 'loss', 'accuracy'])
    await expect(drawer.getByRole('img', { name: new RegExp(`^${name}`) })).toBeVisible();
  const [head, ...rows] = await saved(page, drawer.getByRole('button', { name: 'CSV' }));
  expect(head).toBe('at,loss,accuracy,epoch,done');
  expect(rows.map(row => row.replace(/^\d{4}-\d\d-\d\dT[^,]+Z,/, ''))).toEqual([
    '0.9,0.5,1,25',
    '0.4,0.75,2,50',
  ]);
});

test('the audit log goes back as far as one asks', async ({ berth, signedIn: page }) => {
  const acts = Array.from({ length: 105 }, () => ['cordon', 'uncordon']).flat();
  await Promise.all(acts.map(act => berth.call('POST', `/nodes/node1/${act}`)));
  await page.goto(`${berth.address}/people?tab=audit`);
  const table = page.getByRole('table');
  await expect(table).toHaveAttribute('aria-rowcount', '201');
  await expect(page.getByRole('row').nth(1)).toContainText('cordon node');
  await page.getByRole('button', { name: 'Load older' }).click();
  await expect(page.getByRole('button', { name: 'Load older' })).toHaveCount(0);
  const rows = Number(await table.getAttribute('aria-rowcount')) - 1;
  expect(rows).toBeGreaterThan(acts.length);
  await page.getByRole('region', { name: 'Audit' }).evaluate(frame => {
    frame.scrollTop = frame.scrollHeight;
  });
  await expect(page.getByRole('row', { name: /sign in/ }).first()).toBeVisible();

  // A file has everything, also what nobody looked at.
  await page.reload();
  await expect(table).toHaveAttribute('aria-rowcount', '201');
  const lines = await saved(page, page.getByRole('button', { name: 'CSV' }));
  expect(lines.filter(line => line.includes('cordon'))).toHaveLength(acts.length);
  expect(new Set(lines).size).toBe(lines.length);
});

test('each worker has its own log and its own shell', async ({ berth, signedIn: page }) => {
  await begin(berth, 'gang', 'echo this is worker $BERTH_RANK; sleep infinity', '-g', '1', '--workers', '2');
  await page.getByRole('link', { name: 'gang', exact: true }).first().click();
  const drawer = page.getByRole('complementary', { name: 'Workload gang' });
  await drawer.getByRole('tab', { name: 'Logs' }).click();
  const log = drawer.getByRole('log');
  await expect(log).toHaveText('this is worker 0');
  await drawer.getByLabel('Worker').selectOption('Worker 1');
  await expect(log).toHaveText('this is worker 1');

  await drawer.getByRole('tab', { name: 'Terminal' }).click();
  const screen = drawer.locator('.xterm-rows');
  const asks = async (rank: number) => {
    await expect(drawer.getByRole('status')).toHaveText(/^Connected to node\d$/);
    await drawer.getByLabel('Terminal of gang').focus();
    await page.keyboard.type('echo rank-$BERTH_RANK-$((40 + 2))\n');
    await expect(screen).toContainText(`rank-${rank}-42`);
  };
  await asks(0);
  await drawer.getByLabel('Worker').selectOption({ index: 1 });
  await asks(1);
});

test('each declared port opens what listens there', async ({ berth, signedIn: page }) => {
  const serve = (port: number) =>
    `mkdir -p ${port}; echo this is port ${port} > ${port}/index.html; python3 -m http.server -d ${port} "$BERTH_PORT_${port}"`;
  const script = `(${serve(8000)}) & ${serve(9000)}`;
  await begin(berth, 'web', script, '-g', '1', '--port', '8000', '--port', '9000');
  await page.getByRole('link', { name: 'web', exact: true }).click();
  await page.getByRole('tab', { name: 'Connect' }).click();
  for (const port of [9000, 8000]) {
    const [other] = await Promise.all([
      page.context().waitForEvent('page'),
      page.getByRole('button', { name: `Open port ${port}` }).click(),
    ]);
    await expect(other.getByText(`this is port ${port}`)).toBeVisible();
    await other.close();
  }
});
