// A shell in the page: typed into, resized, ended, taken away, and left by the keyboard.
import type { Locator, Page } from '@playwright/test';
import { type Berth, expect, test } from './berth.ts';

async function sleeper(berth: Berth, name: string, team: string, gpus: number) {
  await berth.run('submit', name, '-p', team, '-g', String(gpus), '-i', 'bash', '--', 'sleep', 'infinity');
  await berth.run('wait', name, '-p', team, '--for', 'running');
}

async function openTerminal(page: Page, name: string): Promise<Locator> {
  await page.getByRole('link', { name, exact: true }).first().click();
  const drawer = page.getByRole('complementary', { name: `Workload ${name}` });
  await drawer.getByRole('tab', { name: 'Terminal' }).click();
  await expect(drawer.getByRole('status')).toHaveText(/^Connected to node\d$/);
  return drawer;
}

test('a terminal takes what is typed, has colours and the right size, and says how it ended', async ({
  berth,
  signedIn: page,
}) => {
  await sleeper(berth, 'work', 'team-a', 1);
  const drawer = await openTerminal(page, 'work');
  const screen = drawer.locator('.xterm-rows');
  await page.keyboard.type('echo $((40 + 2)) $TERM in $BERTH_JOB_NAME.\n');
  await expect(screen).toContainText('42 xterm-256color in');

  await page.keyboard.type("printf '\\e[38;2;10;200;30m%s\\e[0m \\e[31m%s\\e[0m\\n' leaf rose\n");
  await expect(screen.locator('span', { hasText: /^leaf$/ })).toHaveAttribute('style', /color:/);
  await expect(screen.locator('span.xterm-fg-1', { hasText: 'rose' })).toBeVisible();

  for (const height of [800, 600]) {
    await page.setViewportSize({ width: 1280, height });
    // The shell hears of it a moment later.
    await expect(async () => {
      await page.keyboard.type('clear; echo "[$(stty size)]"\n');
      const rows = await screen.locator('> div').count();
      await expect(screen).toContainText(new RegExp(`\\[${rows} \\d+\\]`), { timeout: 2000 });
    }).toPass();
  }

  // It goes on while somebody looks elsewhere.
  await page.keyboard.type('kept=yes\n');
  await drawer.getByRole('tab', { name: 'Details' }).click();
  await expect(screen).toBeHidden();
  await drawer.getByRole('tab', { name: 'Terminal' }).click();
  await drawer.getByLabel('Terminal of work').focus();
  await page.keyboard.type('echo still-$kept\n');
  await expect(screen).toContainText('still-yes');

  await page.keyboard.type('exit 3\n');
  await expect(drawer.getByRole('status')).toHaveText('The shell ended with code 3.');
  await drawer.getByRole('button', { name: 'Connect again' }).click();
  await expect(drawer.getByRole('status')).toHaveText(/^Connected to node\d$/);
  await page.keyboard.type('echo $((50 + 5)) again\n');
  await expect(screen).toContainText('55 again');
});

test('one copies from a terminal, pastes into it, and leaves it by the keyboard', async ({
  berth,
  signedIn: page,
}) => {
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await sleeper(berth, 'work', 'team-a', 1);
  const drawer = await openTerminal(page, 'work');
  const screen = drawer.locator('.xterm-rows');
  await page.evaluate(() => navigator.clipboard.writeText('echo pasted-$((6 * 7))'));
  await page.keyboard.press('Control+V');
  await expect(screen).toContainText('echo pasted-');
  await page.keyboard.press('Enter');
  const line = screen.locator('> div', { hasText: /^pasted-42/ });
  await expect(line).toBeVisible();
  const box = (await line.boundingBox())!;
  await page.mouse.click(box.x + 12, box.y + box.height / 2, { clickCount: 2 });
  await page.keyboard.press('Control+Shift+C');
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toContain('pasted');

  // The shell gets these, as editors need them.
  await page.keyboard.press('Escape');
  await page.keyboard.press('Tab');
  await expect(drawer).toBeVisible();
  await expect(drawer.getByLabel('Terminal of work')).toBeFocused();
  await page.keyboard.press('Control+Shift+X');
  await expect(drawer.getByRole('button', { name: 'Close the shell' })).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(drawer.getByRole('status')).toHaveText('You closed it.');
  await page.keyboard.press('Escape');
  await expect(drawer).toBeHidden();
});

test('whoever is in a job that is preempted is told, and comes back when it runs again', async ({
  berth,
  signedIn: page,
}) => {
  await sleeper(berth, 'steady', 'team-d', 8);
  await sleeper(berth, 'borrower', 'team-b', 8);
  const drawer = await openTerminal(page, 'borrower');
  await sleeper(berth, 'owner', 'team-a', 4);
  await expect(drawer.getByRole('status')).toContainText('team-b/borrower ended here');
  await expect(drawer.getByRole('status')).toContainText('stopped for team-a/owner (quota-reclaim)');
  const again = drawer.getByRole('button', { name: 'Connect again' });
  await expect(again).toBeDisabled();
  await berth.run('delete', 'owner', '-p', 'team-a');
  await expect(again).toBeEnabled();
  await again.click();
  await expect(drawer.getByRole('status')).toHaveText(/^Connected to node\d$/);
  await page.keyboard.type('echo $((60 + 6)) back\n');
  await expect(drawer.locator('.xterm-rows')).toContainText('66 back');
});

test('a flood does not drown the page', async ({ berth, signedIn: page }) => {
  await sleeper(berth, 'work', 'team-a', 1);
  const drawer = await openTerminal(page, 'work');
  await page.keyboard.type('head -c 8000000 /dev/zero | tr "\\0" "x"; echo; echo over-$((3 + 4))\n');
  const says = (text: string) => async () =>
    ((await drawer.locator('.xterm-rows').textContent()) ?? '').includes(text);
  await expect.poll(says('over-7'), { timeout: 120_000 }).toBe(true);
  await page.keyboard.type('echo alive-$((3 + 5))\n');
  await expect.poll(says('alive-8')).toBe(true);
});
